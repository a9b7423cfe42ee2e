"""Weights that a model keeps in FP8 with scales, as one tensor: layers take both as they are, and torch
computes with what they stand for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

_BLOCK = 128
_ATEN = torch.ops.aten


class ScaledWeight(torch.Tensor):  # type: ignore[misc]
    """[.., n, k], of bfloat16 to whoever computes with it.

    Attributes
    ----------
    fp8_values : torch.Tensor
        float8_e4m3fn.
    fp8_scales : torch.Tensor
        float32: one a block of 128x128, [.., ceil(n/128), ceil(k/128)], or one a row, [.., n].
    """

    fp8_values: Any
    fp8_scales: Any

    @staticmethod
    def __new__(cls, values: Any, scales: Any) -> ScaledWeight:
        made: ScaledWeight = torch.Tensor._make_wrapper_subclass(
            cls, values.shape, dtype=torch.bfloat16, device=values.device
        )
        made.fp8_values, made.fp8_scales = values, scales
        return made

    def dense(self) -> Any:
        """In bfloat16."""
        n, k = self.fp8_values.shape[-2:]
        scales = self.fp8_scales[..., None]
        if self.by_block:
            scales = self.fp8_scales.repeat_interleave(_BLOCK, -2)[..., :n, :]
            scales = scales.repeat_interleave(_BLOCK, -1)[..., :k]
        return (self.fp8_values.float() * scales).bfloat16()

    @property
    def by_block(self) -> bool:
        return bool(self.fp8_scales.dim() == self.fp8_values.dim())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"ScaledWeight({tuple(self.shape)}, {'by block' if self.by_block else 'by row'})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """For torch's compiler, which traces with tensors that have no values."""
        return ["fp8_values", "fp8_scales"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], *_: Any) -> ScaledWeight:
        return ScaledWeight(inner["fp8_values"], inner["fp8_scales"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept = _KEEPING.get(func)
        made = None if kept is None else kept(*args, **(kwargs or {}))
        if made is not None:
            return made
        args, kwargs = tree_map_only(cls, lambda one: one.dense(), (args, kwargs or {}))
        return func(*args, **kwargs)


def _detached(one: Any) -> Any:
    return ScaledWeight(one.fp8_values, one.fp8_scales)


def _selected(one: Any, dim: int, index: int) -> Any:
    """A matrix of several."""
    if dim != 0 or one.dim() < 3:
        return None
    return ScaledWeight(one.fp8_values[index], one.fp8_scales[index])


def _stacked(parts: Sequence[Any], dim: int = 0) -> Any:
    if dim != 0 or not _are_alike(parts) or len({one.fp8_values.shape for one in parts}) != 1:
        return None
    return _put_together(torch.stack, parts)


def _joined(parts: Sequence[Any], dim: int = 0) -> Any:
    """Matrices one below the other."""
    if dim != 0 or not _are_alike(parts) or parts[0].dim() != 2:
        return None
    if parts[0].by_block and any(one.shape[0] % _BLOCK for one in parts[:-1]):
        return None  # a block would have rows of two
    return _put_together(torch.cat, parts)


def _are_alike(parts: Sequence[Any]) -> bool:
    return all(isinstance(one, ScaledWeight) for one in parts) and (
        len({one.by_block for one in parts}) == 1
    )


def _put_together(by: Callable[[list[Any]], Any], parts: Sequence[Any]) -> ScaledWeight:
    values = by([one.fp8_values.view(torch.uint8) for one in parts])  # float8 lacks it in some releases
    return ScaledWeight(values.view(torch.float8_e4m3fn), by([one.fp8_scales for one in parts]))


# What has scales of its own again.
_KEEPING: dict[Any, Callable[..., Any]] = {
    _ATEN.detach.default: _detached,
    _ATEN.select.int: _selected,
    _ATEN.stack.default: _stacked,
    _ATEN.cat.default: _joined,
}


def scaled_weight(values: Any, scales: Any) -> ScaledWeight | None:
    """Of float8_e4m3fn values [.., n, k] and their scales, one for all among them; None if these are
    of another kind.
    """
    if values.dtype is not torch.float8_e4m3fn or values.dim() not in (2, 3):
        return None
    *more, n, k = values.shape
    blocks = (*more, math.ceil(n / _BLOCK), math.ceil(k / _BLOCK))
    given, of_all = tuple(scales.shape), math.prod(more)
    scales = scales.detach().float()
    if given == blocks:
        return ScaledWeight(values.detach(), scales)
    if given in ((*more, n), (*more, n, 1)):
        return ScaledWeight(values.detach(), scales.reshape(*more, n))
    if scales.numel() in (1, of_all):
        each = scales.reshape(*(more if scales.numel() == of_all else ()), 1, 1)
        return ScaledWeight(values.detach(), each.expand(blocks).contiguous())
    return None


def is_fp8(module: Any) -> bool:
    """Whether it has learnt something in float8_e4m3fn."""
    return any(one.dtype is torch.float8_e4m3fn for one in module.parameters())


def with_scales(module: Any) -> dict[str, Any]:
    """What a module has learnt, by name: FP8 weights with the scales that are called as they are, and
    something with "scale" behind. Scales of activations are left out: layers have one for each call.
    Empty where a scale is of another kind.
    """
    own = dict(module.named_parameters(recurse=False))
    if not is_fp8(module):
        return own
    own |= dict(module.named_buffers(recurse=False))
    scales = {name: one for name, one in own.items() if "scale" in name}
    left = {one for one in scales if "activation" not in one and "input" not in one}
    found = dict[str, Any]()
    for name in own.keys() - scales.keys():
        found[name] = own[name]
        if own[name].dtype is torch.float8_e4m3fn:
            its = [one for one in left if one.startswith(name + "_scale")]
            made = scaled_weight(own[name], scales[its[0]]) if len(its) == 1 else None
            if made is None:
                return {}
            left -= {*its}
            found[name] = torch.nn.Parameter(made, requires_grad=False)
    return {} if left else {name: found[name] for name in own if name in found}
