"""Layers as one custom op of torch: what its compiler and its tracers see of a call."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

import torch

from gemmd._memory import interop
from gemmd._ops import narrowing

if TYPE_CHECKING:
    from gemmd._layers.layer import Layer

_layers: weakref.WeakValueDictionary[int, Layer] = weakref.WeakValueDictionary()
_keys = itertools.count(1)


def _by(key: int) -> Any:
    found = _layers.get(key)
    if found is None:
        raise RuntimeError(f"gemmd::layer: layer {key} is gone; keep it while it is called")
    return found


def _layer(x, key, features, dtype):  # type: ignore[no-untyped-def]
    return _by(key).run(x)


def _routed(x, experts, weights, key, features, dtype):  # type: ignore[no-untyped-def]
    return _by(key).route(x, experts, weights)


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


# Those that a layer takes; this torch may lack the last two.
_TAKEN = [
    getattr(torch, name)
    for name in ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
]


class Traced:
    """A layer's call as the op `gemmd::layer`, or a layer of experts' as `gemmd::routed`. It takes
    part in no gradient, as a call past the compiler does not.
    """

    def __init__(self, layer: Layer) -> None:
        self.key = next(_keys)
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

    def call(self, x: Any) -> Any:
        if x.shape[-1] != self.in_features:
            raise ValueError(f"x has shape {x.shape}, the last extent must be k={self.in_features}")
        return torch.ops.gemmd.layer(x.detach(), self.key, self.features, self._dtype(x))

    def route(self, x: Any, experts: Any, weights: Any) -> Any:
        given = x.detach(), experts, weights.detach()
        return torch.ops.gemmd.routed(*given, self.key, self.features, self._dtype(x))

    def _dtype(self, x: Any) -> Any:
        if x.dtype not in self.dtypes:
            raise TypeError(narrowing.not_taken(x.dtype))
        return self.dtypes[x.dtype]
