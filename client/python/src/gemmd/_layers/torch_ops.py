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


def _layer(x, key, features, dtype):  # type: ignore[no-untyped-def]
    found = _layers.get(key)
    if found is None:
        raise RuntimeError(f"gemmd::layer: layer {key} is gone; keep it while it is called")
    return found.run(x)


def _fake(x, key, features, dtype):  # type: ignore[no-untyped-def]
    return x.new_empty((*x.shape[:-1], features), dtype=dtype)


# By annotations that are no strings: torch infers the op's schema from them.
_layer.__annotations__ = {
    "x": torch.Tensor, "key": int, "features": int, "dtype": torch.dtype, "return": torch.Tensor,
}  # fmt: skip
op = torch.library.custom_op("gemmd::layer", _layer, mutates_args=())
op.register_fake(_fake)


class Traced:
    """A layer's call as the op `gemmd::layer`."""

    def __init__(self, layer: Layer) -> None:
        self.key = next(_keys)
        _layers[self.key] = layer
        self.features = layer.out_features
        self.in_features = layer.in_features
        self.dtypes = {}  # of results, by x's
        for name in ("float32", "float16", "bfloat16", "float64"):
            dtype = getattr(torch, name)
            sent = layer.dtype_for(narrowing.activations_as(dtype))
            self.dtypes[dtype] = interop.torch_dtype(layer.result_dtype(sent))

    @staticmethod
    def is_compiling() -> bool:
        return bool(torch.compiler.is_compiling())

    def call(self, x: Any) -> Any:
        if x.shape[-1] != self.in_features:
            raise ValueError(f"x has shape {x.shape}, the last extent must be k={self.in_features}")
        return torch.ops.gemmd.layer(x, self.key, self.features, self.dtypes[x.dtype])
