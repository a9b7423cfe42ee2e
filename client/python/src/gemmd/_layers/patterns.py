"""What a module of torch may be replaced by: `PATTERNS` for modules that hold Linears, `linear` for
one alone, `siblings` for Linears of one module that get the same x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from gemmd._layers.layer import Layer
from gemmd.linear import Linear
from gemmd.mlp import MLP
from gemmd.ops import Activation
from gemmd.resident import Quantize
from gemmd.sequential import Sequential

if TYPE_CHECKING:
    from gemmd.session import Session


class Values:
    """A weight as layers take it: a function that is called unless the weight is published."""

    def __init__(self, *tensors: Any) -> None:
        self._tensors = tensors
        self.used = False

    def __call__(self) -> Any:
        self.used = True
        return self._tensors[0] if len(self._tensors) == 1 else self._tensors


class Joined(Values):
    """Weights one below the other, as one."""

    def __call__(self) -> Any:
        self.used = True
        return torch.cat(self._tensors)


@dataclass(frozen=True)
class Match:
    """A layer that can take a module's place, or those of several.

    Attributes
    ----------
    linears : tuple of torch.nn.Linear
        All that hold the layer's weights.
    endings : tuple of str
        Of the names that the weights are published by.
    shapes : list of (n, k, has_bias)
        Of the layer's weights.
    compute : callable
        What the layer computes, by torch and the module's own weights.
    columns : tuple of int
        Of siblings, each of which takes that many columns of the result; else empty.
    """

    linears: tuple[Any, ...]
    endings: tuple[str, ...]
    shapes: list[tuple[int, int, bool]]
    compute: Callable[[Any], Any]
    values: tuple[Values, ...]
    _make: Callable[..., Layer]
    columns: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        return sum(one.weight.numel() for one in self.linears)

    @property
    def on_meta(self) -> bool:
        """Whether a weight or bias has no values."""
        return any(one.is_meta for linear in self.linears for one in linear.parameters())

    @property
    def sent(self) -> bool:
        """Whether the layer was made of the module's weights: no published ones were found."""
        return all(one.used for one in self.values)

    def make(self, session: Session, name: str, quantize: Quantize | None) -> Layer:
        """The layer, of published weights alone if the module's have no values."""
        given = [None] * len(self.values) if self.on_meta else self.values
        return self._make(session, *given, name=name, quantize=quantize)


def linear(module: Any) -> Match:
    """A Linear for a torch.nn.Linear."""

    def make(session: Session, weight: Any, **options: Any) -> Layer:
        bias = None if weight is None else module.bias
        return Linear(session, weight, bias=bias, **options)

    return Match((module,), ("",), [_shape(module)], module, (Values(module.weight),), make)


def siblings(parent: Any, path: str) -> Match | None:
    """One Linear for the query, key and value of an attention, which stay modules of their own."""
    if any(word in f"{path} {type(parent).__name__}".lower() for word in _ACROSS):
        return None
    parts: tuple[Any, ...] = ()
    for names in _SIBLINGS:
        parts = tuple(parent._modules.get(name) for name in names)
        if all(type(one) is torch.nn.Linear for one in parts):
            break
    else:
        return None
    first = parts[0]
    if any(_kind(one) != _kind(first) for one in parts):
        return None
    columns = tuple(one.out_features for one in parts)
    has_bias = any(one.bias is not None for one in parts)
    ending = "".join("." + name for name in names[1:])

    def make(session: Session, weight: Any, *, name: str, **options: Any) -> Layer:
        bias = torch.cat([_bias(one) for one in parts]) if weight is not None and has_bias else None
        return Linear(session, weight, bias=bias, name=name + ending if name else "", **options)

    return Match(
        parts,
        (ending,),
        [(sum(columns), first.in_features, has_bias)],
        lambda x: torch.cat([one(x) for one in parts], -1),
        (Joined(*(one.weight for one in parts)),),
        make,
        columns,
    )


def gated_mlp(module: Any) -> Match | None:
    """An MLP for down(activation(gate(x)) * up(x)), as Llama and its like have it."""
    parts = next((found for names in _GATED if (found := _linears_of(module, names))), None)
    activation = activation_of(module)
    if parts is None or activation is None:
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

    return Match(
        parts,
        (".gate_up", ".down"),
        [(2 * i, k, has_bias), (n, i, down_has_bias)],
        lambda x: down(_ACTIVATIONS[activation](gate(x)) * up(x)),
        (Values(gate.weight, up.weight), Values(down.weight)),
        make,
    )


def halved_mlp(module: Any) -> Match | None:
    """An MLP for down(activation(gate) * up), gate and up the halves of one Linear's result, as Phi
    has it.
    """
    parts = _two_of(module)
    if parts is None or parts[0].out_features != 2 * parts[1].in_features:
        return None
    first, second = parts

    def by(activation: Activation, x: Any) -> Any:
        gate, up = first(x).chunk(2, -1)
        return second(_ACTIVATIONS[activation](gate) * up)

    activation = activation_of(module) or _nearest(module, first, by)
    if activation is None:
        return None

    def make(session: Session, gate_up: Any, down: Any, **options: Any) -> Layer:
        biases = {}
        if gate_up is not None:
            biases = {"gate_up_bias": first.bias, "down_bias": second.bias}
        return MLP(session, gate_up, down, activation=activation, **biases, **options)

    return Match(
        parts,
        (".gate_up", ".down"),
        [_shape(first), _shape(second)],
        lambda x: by(activation, x),
        (Values(first.weight), Values(second.weight)),
        make,
    )


def plain_mlp(module: Any) -> Match | None:
    """A Sequential of two Linears for fc2(activation(fc1(x))), as ViT and its like have it."""
    parts = _two_of(module)
    if parts is None or parts[0].out_features != parts[1].in_features:
        return None
    first, second = parts

    def by(activation: Activation, x: Any) -> Any:
        return second(_ACTIVATIONS[activation](first(x)))

    activation = activation_of(module) or _nearest(module, first, by)
    if activation is None:
        return None

    def make(session: Session, *weights: Any, name: str, **options: Any) -> Layer:
        made = list[Linear]()
        given = zip(parts, weights, _OF_TWO, (activation, "none"), strict=True)
        try:
            for one, weight, ending, applied in given:
                bias = None if weight is None else one.bias
                named = name + ending if name else ""
                made.append(
                    Linear(session, weight, bias=bias, activation=applied, name=named, **options)
                )
        except BaseException:
            for layer in made:
                layer.close()
            raise
        return Sequential(*made)

    return Match(
        parts,
        _OF_TWO,
        [_shape(first), _shape(second)],
        lambda x: by(activation, x),
        (Values(first.weight), Values(second.weight)),
        make,
    )


# The first that matches a module is taken.
PATTERNS: tuple[Callable[[Any], Match | None], ...] = (gated_mlp, halved_mlp, plain_mlp)

_OF_TWO = (".first", ".second")  # no names of modules, which might be adopted one by one

_ACTIVATIONS: dict[Activation, Callable[[Any], Any]] = {
    "silu": F.silu,
    "gelu_erf": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}
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
    if found is None and isinstance(module, torch.nn.Sequential):
        others = [one for one in module if not isinstance(one, (torch.nn.Linear, torch.nn.Dropout))]
        found = others[0] if len(others) == 1 else None
    if not callable(found):
        return None
    x = torch.linspace(-6, 6, 97, device="cpu", dtype=torch.float32)
    try:
        y = found(x.clone())  # it may write in place
        for name, exact in _ACTIVATIONS.items():
            if torch.allclose(y, exact(x), rtol=0, atol=5e-5):  # erf's and tanh's differ by 5e-4
                return name
    except Exception:  # it may want a GPU, or something else than a tensor
        return None
    return None


def _two_of(module: Any) -> tuple[Any, ...] | None:
    """A module's Linears, if they are two and hold all that it has learnt."""
    names = [name for name, one in module._modules.items() if type(one) is torch.nn.Linear]
    return _linears_of(module, tuple(names)) if len(names) == 2 else None


def _nearest(
    module: Any, first: Any, by: Callable[[Activation, Any], Any]
) -> Activation | None:
    """Of a forward that names its activation itself, found by its results."""
    if first.weight.is_meta:
        return None
    x = torch.linspace(-3, 3, 4 * first.in_features, device="cpu", dtype=torch.float32)
    x = x.reshape(4, -1).to(first.weight.device, first.weight.dtype)
    try:
        own = module(x)
        off = {name: float((by(name, x) - own).norm()) for name in _ACTIVATIONS}
    except Exception:  # it takes something else than x alone, for instance
        return None
    return min(off, key=lambda name: off[name])


def _linears_of(module: Any, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    """The children of those names, if they are Linears and hold all that the module has learnt."""
    parts = tuple(module._modules.get(name) for name in names)
    if any(type(one) is not torch.nn.Linear for one in parts):
        return None
    own = {id(one) for part in parts if part is not None for one in part.parameters()}
    return parts if all(id(one) in own for one in module.parameters()) else None


def _kind(module: Any) -> tuple[Any, ...]:
    return module.in_features, module.weight.dtype, module.weight.device


def _bias(module: Any) -> Any:
    if module.bias is not None:
        return module.bias
    return module.weight.new_zeros(module.out_features)


def _shape(module: Any) -> tuple[int, int, bool]:
    return module.out_features, module.in_features, module.bias is not None
