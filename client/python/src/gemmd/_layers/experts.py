"""Experts that a module of torch keeps as stacked weights: told by its forward itself, whatever its
parts are called.

Such a module is called with tokens, each token's experts, and their weights, as those of
transformers are; or with rows for each expert, those of one behind those of another, as Llama 4's
is. Its forward is tried on small weights of random numbers, in place of its own.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from gemmd._layers.chain import ACTIVATIONS, random_rows, takes_x_alone
from gemmd._layers.scaled import with_scales
from gemmd.ops import Gate

_HIDDEN, _INNER = 64, 32  # of the small weights; torch.grouped_mm wants rows of 16 bytes and more
_MOST_OFF = 1e-3  # of the norm: GELU's two forms differ by less, the nearer one is taken
_TOP = 2
_ARGUMENTS = ((1, 2), (2, 1))  # where a token's experts and their weights stand
_MOST_FACTOR = 100.0  # of attributes that may be a clamp's limit or SiLU's factor


@dataclass(frozen=True)
class Experts:
    """What a module of experts computes, and of what.

    Attributes
    ----------
    gate_up : tuple of str
        The parameter [experts, 2i, k] that has both, or those of gate and up, [experts, i, k]. That of
        a gate that is alone: [experts, i, k].
    down : str
        [experts, n, i]
    gate_up_bias, down_bias : str
        [experts, 2i] and [experts, n]; "" where there is none.
    transposed : bool
        The weights lie with their last two extents exchanged.
    order : tuple of int
        Which arguments of its forward are a token's experts and their weights.
    names : tuple of str
        Of its forward's arguments for x, the experts and their weights.
    batch : int
        All its experts, where it is called with as many rows for each; 0 where it is called with
        tokens.
    """

    gate_up: tuple[str, ...]
    down: str
    gate_up_bias: str
    down_bias: str
    transposed: bool
    gate: Gate = Gate()
    order: tuple[int, int] = _ARGUMENTS[0]
    names: tuple[str, str, str] = ("x", "experts", "weights")
    batch: int = 0

    def called(self, module: Any, x: Any, experts: Any, weights: Any) -> Any:
        """The module's own result."""
        if self.batch:
            each = by_each(module, x.expand(self.batch, *x.shape))
            return summed(each, experts, weights).to(x.dtype)
        given = (experts, weights) if self.order == _ARGUMENTS[0] else (weights, experts)
        return module(x, *given)

    def matrix_of_gate_up(self, values: dict[str, Any]) -> Any:
        """As `gemmd.MoE` takes it, of the module's parameters by name: all gates above all ups, as
        the kernels do that gate what they multiply.
        """
        parts = [self._turned(values[name]) for name in self.gate_up]
        return self._halves(parts[0] if len(parts) == 1 else torch.cat(parts, 1))

    def matrix_of_down(self, values: dict[str, Any]) -> Any:
        """Likewise."""
        return self._turned(values[self.down])

    def biases(self, values: dict[str, Any]) -> tuple[Any, Any]:
        """Those of the two, or None."""
        of_gate_up = values.get(self.gate_up_bias)
        halves = None if of_gate_up is None else self._halves(of_gate_up)
        return halves, values.get(self.down_bias)

    @property
    def gate_of_halves(self) -> Gate:
        return replace(self.gate, period=0)

    def _halves(self, rows: Any) -> Any:
        return torch.cat([rows[:, ::2], rows[:, 1::2]], 1) if self.gate.period else rows

    def computes(self, values: dict[str, Any], x: Any, experts: Any, weights: Any) -> Any:
        """[tokens, n], by torch."""
        products = self._gated_products(values, x, experts)
        return self._summed(values, products, experts, weights).to(x.dtype)

    def _turned(self, weight: Any) -> Any:
        return weight.transpose(1, 2) if self.transposed else weight

    def _gated_products(self, values: dict[str, Any], x: Any, experts: Any) -> Any:
        """[tokens, top_k, 2i], or i of gates that are alone, before these."""
        bias = values.get(self.gate_up_bias)
        parts = [self._turned(values[name]) for name in self.gate_up]
        rows = []
        for token, expert in _choices(experts):
            row = torch.cat([one[expert].float() @ x[token].float() for one in parts])
            rows.append(row if bias is None else row + bias[expert].float())
        return torch.stack(rows).unflatten(0, tuple(experts.shape))

    def _summed(self, values: dict[str, Any], products: Any, experts: Any, weights: Any) -> Any:
        hidden = _by_gate(self.gate, products).flatten(0, 1)
        down, bias = self._turned(values[self.down]), values.get(self.down_bias)
        rows = []
        for at, (_, expert) in enumerate(_choices(experts)):
            row = down[expert].float() @ hidden[at]
            rows.append(row if bias is None else row + bias[expert].float())
        return (torch.stack(rows).unflatten(0, weights.shape) * weights[..., None].float()).sum(1)


def experts_of(module: Any) -> Experts | None:
    """None: it is no module of experts, or computes something that `gemmd.MoE` does not."""
    names = _argument_names(module)
    return None if names is None else _found(module, names=names)


def batched_experts_of(module: Any) -> Experts | None:
    """The same of a module that is called with rows for each expert."""
    if not holds_batched_experts(module):
        return None
    return _found(module, batch=len(next(module.parameters())))


def _found(module: Any, **called: Any) -> Experts | None:
    if next(module.buffers(), None) is not None:
        return None
    learnt = with_scales(module)
    shapes = {name: tuple(one.shape) for name, one in learnt.items()}
    own = next(iter(learnt.values()), None)
    for held in _held_ways(shapes):
        way = replace(held, **called)
        small = _small_of(way, shapes)
        for device, dtype in _places(own):
            values = {name: one.to(device, dtype) for name, one in small.items()}
            found = _tried(module, way, values)
            if found is not None:
                return found
    return None


def holds_experts(module: Any) -> bool:
    """Whether it looks as if, by what it is called with and what it has learnt."""
    return _is_stacked(module) and _argument_names(module) is not None


def holds_batched_experts(module: Any) -> bool:
    """Likewise, of one that is called with rows for each expert."""
    return _is_stacked(module) and takes_x_alone(module)


def _is_stacked(module: Any) -> bool:
    """Whether all that it has learnt is of several experts, matrices among it."""
    if not any(one.dim() == 3 for one in module.parameters(recurse=False)):
        return False
    own = list(with_scales(module).values())
    stacked = [one for one in own if one.dim() == 3]
    if len(stacked) < 2 or len({len(one) for one in own if one.dim()}) != 1 or len(own[0]) == 1:
        return False
    return all(next(one.parameters(), None) is None for one in module.children())


def by_each(module: Any, rows: Any) -> Any:
    """[tokens, experts, n], of [experts, tokens, k] rows for each expert."""
    return module(rows.flatten(0, 1)).view(*rows.shape[:2], -1).transpose(0, 1)


def summed(each: Any, experts: Any, weights: Any) -> Any:
    """[tokens, n] in float32: the sum of the chosen experts' results, of all experts' [tokens,
    experts, n].
    """
    taken = each.gather(1, experts[..., None].expand(-1, -1, each.shape[-1]))
    return (taken.float() * weights[..., None].float()).sum(1)


def count_of(name: str, module: Any) -> int:
    """How many experts a child of that name is; 0 for another module."""
    if isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict):
        return len(module) if "expert" in name.lower() else 0
    if holds_experts(module):
        return int(next(module.parameters()).shape[0])
    return 0


def trial_inputs(experts: int, columns: int, device: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """Tokens, their experts and weights; the same each time."""
    x = random_rows(columns, device, dtype).flatten(0, 1)
    top = min(_TOP, experts)
    chosen = (torch.arange(len(x)) * 7 % experts)[:, None] + torch.arange(top) * (experts // top)
    weights = (torch.arange(len(x) * top).reshape(len(x), top) % 5 + 1) / 8
    return x, (chosen % experts).to(device), weights.to(device, dtype)


def _argument_names(module: Any) -> tuple[str, str, str] | None:
    """Of x and two more; None if its forward takes fewer, or must be given more."""
    given = [
        one
        for one in inspect.signature(module.forward).parameters.values()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    if len(given) < 3 or any(one.default is one.empty for one in given[3:]):
        return None
    first, second, third = (one.name for one in given[:3])
    return first, second, third


def _held_ways(shapes: dict[str, tuple[int, ...]]) -> Iterator[Experts]:
    """How stacked weights of these shapes could be experts."""
    stacked = {name: shape for name, shape in shapes.items() if len(shape) == 3}
    biases = {name: shape for name, shape in shapes.items() if len(shape) == 2}
    counts = {shape[0] for shape in shapes.values() if shape}
    if len(stacked) not in (2, 3) or len(stacked) + len(biases) != len(shapes) or len(counts) != 1:
        return
    for down in reversed(stacked):
        gate_up = tuple(name for name in stacked if name != down)
        if len({stacked[name] for name in gate_up}) != 1:
            continue
        for transposed in (False, True):
            n, inner = _matrix(stacked[down], transposed)
            rows, k = _matrix(stacked[gate_up[0]], transposed)
            both = rows * len(gate_up)
            if n != k or both not in (inner, 2 * inner):
                continue
            gate = Gate(alone=both == inner)
            for first, second in _pairs(biases):
                fits = not first or biases[first][1] == both
                if fits and (not second or biases[second][1] == n):
                    ways = itertools.permutations(gate_up)
                    yield from (Experts(one, down, first, second, transposed, gate) for one in ways)


def _matrix(shape: tuple[int, ...], transposed: bool) -> tuple[int, int]:
    return (shape[2], shape[1]) if transposed else (shape[1], shape[2])


def _pairs(biases: dict[str, Any]) -> list[tuple[str, str]]:
    """Of gate_up and of down: all there are."""
    if len(biases) == 2:
        first, second = biases
        return [(first, second), (second, first)]
    return [("", "")] if not biases else []


def _small_of(held: Experts, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Random parameters of as many experts, which are small. A forward with rows for each expert
    knows how long these are.
    """
    generator = torch.Generator("cpu").manual_seed(1)
    both = _INNER if held.gate.alone else 2 * _INNER
    each = both // len(held.gate_up)
    hidden = _matrix(shapes[held.down], held.transposed)[0] if held.batch else _HIDDEN
    sizes = {held.down: (hidden, _INNER), **{name: (each, hidden) for name in held.gate_up}}
    count = next(iter(shapes.values()))[0]
    made = {
        name: torch.randn(count, *size, generator=generator) / size[1] ** 0.5
        for name, size in sizes.items()
    }
    if held.transposed:
        made = {name: one.transpose(1, 2).contiguous() for name, one in made.items()}
    for name, columns in ((held.gate_up_bias, both), (held.down_bias, hidden)):
        if name:
            made[name] = torch.randn(count, columns, generator=generator)
    return made


def _places(own: Any) -> list[tuple[Any, Any]]:
    """Where to try: its own, for a forward that does not work elsewhere."""
    first = (torch.device("cpu"), torch.float32)
    return [first] if own.is_meta else [first, (own.device, own.dtype)]


def _tried(module: Any, held: Experts, values: dict[str, Any]) -> Experts | None:
    one = held.matrix_of_down(values)
    x, experts, weights = trial_inputs(one.shape[0], one.shape[1], one.device, one.dtype)
    for order in _ARGUMENTS:
        way = replace(held, order=order)

        def by_small(*given: Any) -> Any:
            return torch.func.functional_call(module, values, given)

        try:
            own = way.called(by_small, x, experts, weights)
        except Exception:  # it wants something else, or these in another order
            continue
        if isinstance(own, torch.Tensor) and own.shape == x.shape and own.isfinite().all():
            return _nearest(module, way, values, (x, experts, weights), own.float())
    return None


def _nearest(
    module: Any, way: Experts, values: dict[str, Any], inputs: tuple[Any, Any, Any], own: Any
) -> Experts | None:
    """With the gate by which these results come nearest to the module's."""
    x, experts, weights = inputs
    products = way._gated_products(values, x, experts)
    most = max(_MOST_OFF, 4 * torch.finfo(x.dtype).eps)
    best, found = most * float(own.norm()), None
    for gate in _gates(module, way):
        one = replace(way, gate=gate)
        off = float((one._summed(values, products, experts, weights) - own).norm())
        if off < best:
            best, found = off, one
    return found


def _gates(module: Any, way: Experts) -> Iterator[Gate]:
    """Those that a module could have, by the numbers that it keeps."""
    if way.gate.alone:
        yield from (Gate(activation, alone=True) for activation in ACTIVATIONS)
        return
    numbers = {
        value
        for value in vars(module).values()
        if isinstance(value, float) and 0 < value < _MOST_FACTOR
    }
    for period in (0, 1) if len(way.gate_up) == 1 else (0,):
        for activation in ACTIVATIONS:
            yield Gate(activation, period=period)
        for alpha, limit, offset in itertools.product({1.0, *numbers}, {0.0, *numbers}, (0.0, 1.0)):
            yield Gate("silu", period=period, alpha=alpha, limit=limit, up_offset=offset)


def _by_gate(gate: Gate, products: Any) -> Any:
    if gate.alone:
        return ACTIVATIONS[gate.activation](products)
    if gate.period:
        of_gate, up = products[..., ::2], products[..., 1::2]
    else:
        of_gate, up = products.chunk(2, -1)
    if gate.limit:
        of_gate, up = of_gate.clamp(max=gate.limit), up.clamp(-gate.limit, gate.limit)
    activated = ACTIVATIONS[gate.activation](gate.alpha * of_gate) / gate.alpha
    return activated * (up + gate.up_offset)


def _choices(experts: Any) -> list[tuple[int, int]]:
    """Each token with each of its experts."""
    return [(token, int(one)) for token, row in enumerate(experts.tolist()) for one in row]
