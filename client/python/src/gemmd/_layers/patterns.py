"""What a module of torch may be replaced by: `PATTERNS` for modules that hold Linears, `linear` for
one alone, `siblings` for Linears of one module that get the same x.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from gemmd._layers.chain import (
    ACTIVATIONS,
    activation_between,
    chain_of,
    random_rows,
    takes_x_alone,
)
from gemmd._layers.experts import Experts, batched_experts_of, experts_of
from gemmd._layers.layer import Layer
from gemmd._layers.match import Joined, Made, Match, Part, Values
from gemmd._layers.mixture import experts_within, mixture_of
from gemmd._layers.scaled import with_scales
from gemmd.linear import Linear
from gemmd.mlp import MLP, joined
from gemmd.moe import MoE
from gemmd.ops import Activation, Gate

if TYPE_CHECKING:
    from gemmd.session import Session


def linear(module: Any) -> Match:
    """A Linear for a torch.nn.Linear."""
    return Match((_linear_part(module),), module)


def _linear_part(module: Any, activation: Activation = "none") -> Part:
    def make(session: Session, weight: Any, **options: Any) -> Layer:
        bias = None if weight is None else module.bias
        return Linear(session, weight, bias=bias, activation=activation, **options)

    return Part(module, (module,), ("",), [_shape(module)], (Values(module.weight),), make)


def experts(module: Any) -> Match | None:
    """A MoE for a module that is given tokens, each token's experts and their weights."""
    found = experts_of(module)
    if found is None:
        return None
    values = with_scales(module)
    return Match((_stacked_part(module, found),), partial(found.computes, values), experts=found)


def _stacked_part(module: Any, found: Experts) -> Part:
    """Of a module with stacked weights."""
    values = with_scales(module)
    has_bias = tuple(bool(one) for one in (found.gate_up_bias, found.down_bias))
    count, n, inner = found.matrix_of_down(values).shape
    both = inner if found.gate.alone else 2 * inner

    def make(session: Session, gate_up: Any, down: Any, **options: Any) -> Layer:
        biases = (None, None) if gate_up is None else found.biases(values)
        return MoE(
            session, gate_up, down, gate=found.gate_of_halves,
            gate_up_bias=biases[0], down_bias=biases[1], **options,
        )  # fmt: skip

    return Part(
        module,
        (module,),
        (".gate_up", ".down"),
        [(count, both, n, has_bias[0]), (count, n, inner, has_bias[1])],
        (
            Made(lambda: found.matrix_of_gate_up(values)),
            Made(lambda: found.matrix_of_down(values)),
        ),
        make,
    )


def mixture(module: Any) -> Match | None:
    """A MoE for a module with a router and its experts: MLPs of two or three Linears, or stacked weights."""
    within = experts_within(module)
    if isinstance(within, torch.nn.ModuleList):
        part = _listed_part(module, within)
    else:
        stacked = batched_experts_of(within)
        part = None if stacked is None else _stacked_part(within, stacked)
    found = None if part is None else mixture_of(module, within)
    return None if part is None or found is None else Match((part,), None, mixture=found)


def _listed_part(module: Any, mlps: Any) -> Part | None:
    """Of a module with a list of MLPs; None if these differ, or are something else."""
    for find in (gated_mlp, halved_mlp, _plain_mlp):
        matches = [one for one in map(find, mlps) if one is not None]
        kinds = {(one.activation, str(one.parts[0].shapes)) for one in matches}
        if len(matches) == len(mlps) and len(kinds) == 1:
            break
    else:
        return None
    parts = [one.parts[0] for one in matches]
    gate = Gate(matches[0].activation, alone=find is _plain_mlp)

    def stacked(which: int) -> Any:
        return torch.stack([joined(one.values[which]()) for one in parts])

    def make(session: Session, gate_up: Any, down: Any, **options: Any) -> Layer:
        biases = {}
        if gate_up is not None:
            held = [[one.bias for one in part.holders] for part in parts]
            first, second = ([one[:-1] for one in held], [one[-1] for one in held])
            if first[0][0] is not None:
                biases["gate_up_bias"] = torch.stack([torch.cat(one) for one in first])
            if second[0] is not None:
                biases["down_bias"] = torch.stack(second)
        return MoE(session, gate_up, down, gate=gate, **biases, **options)

    return Part(
        module,
        tuple(one for part in parts for one in part.holders),
        (".gate_up", ".down"),
        [(len(parts), *shape) for shape in parts[0].shapes],
        (Made(lambda: stacked(0)), Made(lambda: stacked(1))),
        make,
    )


def _plain_mlp(module: Any) -> Match | None:
    """Two Linears with an activation between them, as an expert without a gate has them."""
    linears = linears_within(module)
    steps = chain_of(module, linears) if len(linears) == 2 else None
    if steps is None or steps[1][1] != "none":
        return None
    (first, activation), (second, _) = steps
    held = (first, second)

    def make(session: Session, *_: Any, **__: Any) -> Layer:
        raise AssertionError("it is an expert among others")

    part = Part(
        module, held, (".gate_up", ".down"), [_shape(one) for one in held],
        (Values(first.weight), Values(second.weight)), make,
    )  # fmt: skip
    return Match((part,), None, activation=activation)


def siblings(parent: Any, path: str) -> Match | None:
    """One Linear for the query, key and value of an attention, which stay modules of their own."""
    if any(word in f"{path} {type(parent).__name__}".lower() for word in _ACROSS):
        return None
    linears: tuple[Any, ...] = ()
    for names in _SIBLINGS:
        linears = tuple(parent._modules.get(name) for name in names)
        if all(type(one) is torch.nn.Linear for one in linears):
            break
    else:
        return None
    first = linears[0]
    if any(_kind(one) != _kind(first) for one in linears):
        return None
    columns = tuple(one.out_features for one in linears)
    has_bias = any(one.bias is not None for one in linears)
    ending = "".join("." + name for name in names[1:])

    def make(session: Session, weight: Any, *, name: str, **options: Any) -> Layer:
        given = weight is not None and has_bias
        bias = torch.cat([_bias(one) for one in linears]) if given else None
        return Linear(session, weight, bias=bias, name=name + ending if name else "", **options)

    part = Part(
        first,
        linears,
        (ending,),
        [(sum(columns), first.in_features, has_bias)],
        (Joined(*(one.weight for one in linears)),),
        make,
    )
    return Match((part,), lambda x: torch.cat([one(x) for one in linears], -1), columns)


def chain(module: Any) -> Match | None:
    """A Sequential for Linears one behind the other, as an MLP without a gate has them."""
    steps = chain_of(module, linears_within(module))
    if steps is None:
        return None

    def compute(x: Any) -> Any:
        for one, activation in steps:
            x = ACTIVATIONS[activation](one(x))
        return x

    return Match(tuple(_linear_part(*step) for step in steps), compute)


def gated_mlp(module: Any) -> Match | None:
    """An MLP for down(activation(gate(x)) * up(x)), as Llama and its like have it."""
    parts = next((found for names in _GATED if (found := _linears_of(module, names))), None)
    activation = activation_of(module)
    if parts is None or activation is None or not takes_x_alone(module):
        return None
    gate, up, down = parts
    (i, k, has_bias), (n, _, down_has_bias) = _shape(gate), _shape(down)
    if _shape(up) != _shape(gate) or down.in_features != i:
        return None

    def make(session: Session, gate_up: Any, down_weight: Any, **options: Any) -> Layer:
        biases = {}
        if gate_up is not None:
            gate_up_bias = torch.cat([gate.bias, up.bias]) if has_bias else None
            biases = {"gate_up_bias": gate_up_bias, "down_bias": down.bias}
        return MLP(session, gate_up, down_weight, activation=activation, **biases, **options)

    part = Part(
        module,
        parts,
        (".gate_up", ".down"),
        [(2 * i, k, has_bias), (n, i, down_has_bias)],
        (Values(gate.weight, up.weight), Values(down.weight)),
        make,
    )
    compute = lambda x: down(ACTIVATIONS[activation](gate(x)) * up(x))  # noqa: E731
    return Match((part,), compute, activation=activation)


def halved_mlp(module: Any) -> Match | None:
    """An MLP for down(activation(gate) * up), gate and up the halves of one Linear's result, as Phi
    has it.
    """
    linears = linears_within(module)
    if len(linears) != 2 or linears[0].out_features != 2 * linears[1].in_features:
        return None
    if not takes_x_alone(module):
        return None
    first, down = linears

    def by(activation: Activation, x: Any) -> Any:
        gate, up = first(x).chunk(2, -1)
        return down(ACTIVATIONS[activation](gate) * up)

    found = activation_of(module) or _nearest(module, first, by)
    if found is None:
        return None
    activation = found

    def make(session: Session, gate_up: Any, down_weight: Any, **options: Any) -> Layer:
        biases = {}
        if gate_up is not None:
            biases = {"gate_up_bias": first.bias, "down_bias": down.bias}
        return MLP(session, gate_up, down_weight, activation=activation, **biases, **options)

    part = Part(
        module,
        (first, down),
        (".gate_up", ".down"),
        [_shape(first), _shape(down)],
        (Values(first.weight), Values(down.weight)),
        make,
    )
    return Match((part,), partial(by, activation), activation=activation)


# The first that matches a module is taken.
PATTERNS: tuple[Callable[[Any], Match | None], ...] = (gated_mlp, halved_mlp, chain)

_SIBLINGS = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("to_q", "to_k", "to_v"),
    ("q_lin", "k_lin", "v_lin"),
    ("wq", "wk", "wv"),
    ("q", "k", "v"),
)
_ACROSS = ("cross", "encoder_attn", "encdec", "attn2")  # whose keys and values are of another x
_GATED = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"), ("wi_0", "wi_1", "wo"))
_HELD_AS = ("act_fn", "activation_fn", "activation", "act")


def activation_of(module: Any) -> Activation | None:
    """By its values, whatever its type is: there are several of each activation. None: it has none
    that layers have, too.
    """
    found = next((getattr(module, name) for name in _HELD_AS if hasattr(module, name)), None)
    if not callable(found):
        return None
    x = torch.linspace(-6, 6, 97, device="cpu", dtype=torch.float32)
    try:
        return activation_between(x, found(x.clone()))  # it may write in place
    except Exception:  # it may want a GPU, or something else than a tensor
        return None


def linears_within(module: Any) -> list[Any]:
    """The Linears of a module that has learnt nothing else; none of another."""
    found = [one for one in module.modules() if type(one) is torch.nn.Linear]
    own = {id(one) for linear in found for one in linear.parameters()}
    return found if all(id(one) in own for one in module.parameters()) else []


def _linears_of(module: Any, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    """The children of those names, if they are Linears and hold all that the module has learnt."""
    parts = tuple(module._modules.get(name) for name in names)
    if any(type(one) is not torch.nn.Linear for one in parts):
        return None
    own = {id(one) for part in parts if part is not None for one in part.parameters()}
    return parts if all(id(one) in own for one in module.parameters()) else None


def _nearest(module: Any, first: Any, by: Callable[[Activation, Any], Any]) -> Activation | None:
    """Of a forward that names its activation itself, found by its results."""
    if first.weight.is_meta:
        return None
    x = random_rows(first.in_features, first.weight.device, first.weight.dtype)
    try:
        own = module(x)
        off = {name: float((by(name, x) - own).norm()) for name in ACTIVATIONS}
    except Exception:  # it takes something else than x alone, for instance
        return None
    return min(off, key=lambda name: off[name])


def _kind(module: Any) -> tuple[Any, ...]:
    return module.in_features, module.weight.dtype, module.weight.device


def _bias(module: Any) -> Any:
    if module.bias is not None:
        return module.bias
    return module.weight.new_zeros(module.out_features)


def _shape(module: Any) -> tuple[int, int, bool]:
    return module.out_features, module.in_features, module.bias is not None
