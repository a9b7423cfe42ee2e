"""Norms by rows that torch has as functions; spelt_norms.py has those that models spell out."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import alike, arguments, sample

if TYPE_CHECKING:
    from gemmd._layers.graph.reading import Reading

_LAYER_NORMS = (F.layer_norm, torch.layer_norm)
_RMS_NORMS = tuple(
    one for one in (getattr(F, "rms_norm", None), getattr(torch, "rms_norm", None)) if one
)


def layer_norm(reading: Reading, node: Node) -> Found | None:
    if node.target not in _LAYER_NORMS:
        return None
    given = arguments(node, ("input", "normalized_shape", "weight", "bias", "eps"))
    return _norm(reading, node, given, True, 1e-5 if given["eps"] is None else given["eps"])


def rms_norm(reading: Reading, node: Node) -> Found | None:
    if node.target not in _RMS_NORMS:
        return None
    given = arguments(node, ("input", "normalized_shape", "weight", "eps"))
    epsilon = given["eps"]
    if epsilon is None:
        epsilon = _default_epsilon(sample(node).dtype)
    return _norm(reading, node, given, False, epsilon)


@cache
def _default_epsilon(dtype: Any) -> float:
    """Releases of torch differ in it: float32's smallest step, or the type's own."""
    small = torch.full((1, 1), 2.0**-10, dtype=dtype, device="cpu")
    by_float32 = dtype is torch.float32 or float(F.rms_norm(small, (1,))) > 0.5
    return float(torch.finfo(torch.float32 if by_float32 else dtype).eps)


def _norm(
    reading: Reading, node: Node, given: dict[str, Any], centered: bool, epsilon: Any
) -> Found | None:
    x, vectors = given["input"], [given.get("weight"), given.get("bias")]
    if tuple(given["normalized_shape"]) != tuple(sample(node).shape[-1:]):
        return None
    if any(one is not None and reading.constant(one) is None for one in vectors):
        return None
    if not alike(node, x) or not isinstance(epsilon, float):
        return None
    weight, bias = (reading.constant(one) for one in vectors)
    nodes = frozenset((node,))
    return Found(
        "norm", node, (x,), nodes, weight=weight, bias=bias, centered=centered, epsilon=epsilon
    )
