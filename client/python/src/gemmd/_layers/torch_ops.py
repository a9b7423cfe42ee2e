"""Layers as one custom op of torch: what its compiler and its tracers see of a call."""

from __future__ import annotations

import hashlib
import itertools
import secrets
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from gemmd._layers import transforms
from gemmd._layers.transforms import NO_GRADIENT
from gemmd._memory import interop
from gemmd._ops import narrowing

if TYPE_CHECKING:
    from gemmd._layers.layer import Layer

_layers: weakref.WeakValueDictionary[int, Layer] = weakref.WeakValueDictionary()
_of_this_process = secrets.token_hex(16)
_unnamed = itertools.count(1)


def _key_of(layer: Layer) -> int:
    """What stands for a layer in a program of torch. An exported one may run in another process:
    there it finds the layer of the same name and kind, and must not find any other.
    """
    if not layer.name:
        return _digest(f"{_of_this_process} {next(_unnamed)}")
    kind = [type(layer).__name__, layer.name, layer.in_features, layer.out_features]
    kind += [getattr(layer, one, None) for one in ("_activation", "_gate", "top_k", "_out_dtype")]
    keys = (_digest(f"{kind} {turn}") for turn in itertools.count())
    return next(key for key in keys if key not in _layers)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def layer_of(key: int) -> Any:
    """The layer that an op with that key calls."""
    found = _layers.get(key)
    if found is None:
        raise RuntimeError(
            "gemmd::layer: the layer that this program of torch calls is gone, or another"
            " process's: keep it while it is called; before a program is exported give it a name, and make it"
            " by that name where the program runs"
        )
    return found


# Results of ops are copied: in a pool of "reduce-overhead" torch refuses memory that others keep.


def _layer(x, key, features, dtype):  # type: ignore[no-untyped-def]
    return layer_of(key).run(x, copied=True).data  # no view: a view with a gradient is not written in place


def _routed(x, experts, weights, key, features, dtype):  # type: ignore[no-untyped-def]
    return layer_of(key).route(x, experts, weights, copied=True).data


# By annotations that are no strings: torch infers the ops' schemas from them.
_SCALARS = {"key": int, "features": int, "dtype": torch.dtype, "return": torch.Tensor}
_layer.__annotations__ = {"x": torch.Tensor, **_SCALARS}
_routed.__annotations__ = {
    "x": torch.Tensor, "experts": torch.Tensor, "weights": torch.Tensor, **_SCALARS,
}  # fmt: skip
op = torch.library.custom_op("gemmd::layer", _layer, mutates_args=())
routed_op = torch.library.custom_op("gemmd::routed", _routed, mutates_args=())


@op.register_fake
def _fake(x, key, features, dtype):  # type: ignore[no-untyped-def]
    return x.new_empty((*x.shape[:-1], features), dtype=dtype)


@routed_op.register_fake
def _fake_routed(x, experts, weights, key, features, dtype):  # type: ignore[no-untyped-def]
    return x.new_empty((*x.shape[:-1], features), dtype=dtype)


def _no_gradient(grad, shape, dtype):  # type: ignore[no-untyped-def]
    raise RuntimeError(NO_GRADIENT)


_no_gradient.__annotations__ = {
    "grad": torch.Tensor, "shape": Sequence[int], "dtype": torch.dtype, "return": torch.Tensor,
}  # fmt: skip
# An op, since the compiler traces a backward that is never called.
no_gradient_op = torch.library.custom_op("gemmd::no_gradient", _no_gradient, mutates_args=())


@no_gradient_op.register_fake
def _fake_gradient(grad, shape, dtype):  # type: ignore[no-untyped-def]
    return grad.new_empty(shape, dtype=dtype)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Of each input, by what its gradient would be made of."""
    ctx.given = [
        (tuple(one.shape), one.dtype) if isinstance(one, torch.Tensor) else None for one in inputs
    ]


def _refuse(ctx: Any, grad: Any) -> tuple[Any, ...]:
    return tuple(
        torch.ops.gemmd.no_gradient(grad, *given) if given and wanted else None
        for given, wanted in zip(ctx.given, ctx.needs_input_grad, strict=True)
    )


for _one in (op, routed_op):
    _one.register_autograd(_refuse, setup_context=_remember)


@op.register_vmap
def _map(info, in_dims, x, key, features, dtype):  # type: ignore[no-untyped-def]
    transforms.refuse_derivatives(x)  # below vmap, what is above it
    return op(x.movedim(in_dims[0], 0), key, features, dtype), 0


class _Refusing(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, result: Any, *_: Any) -> Any:
        return result.data

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(NO_GRADIENT)


def refusing(result: Any, *inputs: Any) -> Any:
    """`result`, whose backward raises, if a gradient is to reach any of the inputs. Raises if a
    derivative of one is carried forward.
    """
    transforms.refuse_derivatives(*inputs)
    if torch.is_grad_enabled() and any(
        isinstance(one, torch.Tensor) and one.requires_grad for one in inputs
    ):
        return _Refusing.apply(result, *inputs)
    return result


# Those that a layer takes; this torch may lack the last two.
_TAKEN = [
    getattr(torch, name)
    for name in ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
]


class Traced:
    """A layer's call as the op `gemmd::layer`, or a layer of experts' as `gemmd::routed`."""

    def __init__(self, layer: Layer) -> None:
        self.key = _key_of(layer)
        _layers[self.key] = layer
        self.features = layer.out_features
        self.in_features = layer.in_features
        self.dtypes = {  # of results, by x's
            dtype: interop.torch_dtype(
                layer.result_dtype(layer.dtype_for(narrowing.activations_as(dtype)))
            )
            for dtype in _TAKEN
        }

    @staticmethod
    def is_compiling() -> bool:
        return bool(torch.compiler.is_compiling())

    carries_tangents = staticmethod(transforms.carries_tangents)

    @staticmethod
    def sees(x: Any) -> bool:
        """Whether torch must see a call with x as an op: it has no memory of its own, or what is
        done with it is recorded.
        """
        if not isinstance(x, torch.Tensor) or x.is_nested:
            return False
        if torch.jit.is_tracing():
            return True
        stands_in = type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
        # Within a transform every new tensor is one of its own, the result's, too.
        return bool(x.is_meta or stands_in or transforms.within() or transforms.has_tangent(x))

    def call(self, x: Any) -> Any:
        transforms.refuse_derivatives(x)
        if x.shape[-1] != self.in_features:
            raise ValueError(f"x has shape {x.shape}, the last extent must be k={self.in_features}")
        return torch.ops.gemmd.layer(x, self.key, self.features, self._dtype(x))

    def route(self, x: Any, experts: Any, weights: Any) -> Any:
        transforms.refuse_derivatives(x, weights)
        return torch.ops.gemmd.routed(x, experts, weights, self.key, self.features, self._dtype(x))

    def _dtype(self, x: Any) -> Any:
        if x.dtype not in self.dtypes:
            raise TypeError(narrowing.not_taken(x.dtype))
        return self.dtypes[x.dtype]
