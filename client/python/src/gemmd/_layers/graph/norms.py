"""Norms by rows: torch's own, and RMSNorms that models spell out."""

from __future__ import annotations

import operator
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import (
    ADDS,
    PRODUCTS,
    alike,
    arguments,
    either_way,
    is_closed,
    past_casts,
    sample,
)

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


def spelt_norm(reading: Reading, node: Node) -> Found | None:
    """weight * (x * rsqrt(mean(x^2) + epsilon)), with casts wherever a model has them; x may be what is
    left of something without its mean.
    """
    nodes = {node}
    weighted = past_casts(node, nodes)
    nodes.add(weighted)
    if weighted.target not in PRODUCTS:
        return None
    weight, scaled = None, None
    for one, other in either_way(weighted):
        if reading.constant(one) is not None and isinstance(other, Node):
            weight, scaled = reading.constant(one), other
    if weight is None or scaled is None or weight.dim() != 1:
        return None
    scaled = past_casts(scaled, nodes)
    if scaled.target not in PRODUCTS:
        return None
    nodes.add(scaled)
    for x, factor in either_way(scaled):
        if not isinstance(x, Node) or not isinstance(factor, Node):
            continue
        within = set(nodes)
        source, centered = _base_of(x, within)
        epsilon = _rsqrt_of_mean_square(past_casts(factor, within), (source, centered), within)
        if epsilon is None:
            continue
        within.discard(source)
        if not alike(node, source) or not is_closed(node, within):
            return None
        return Found(
            "norm", node, (source,), frozenset(within),
            weight=weight, centered=centered, epsilon=epsilon,
        )  # fmt: skip
    return None


Base = tuple[Node, bool]  # a tensor, and whether its rows' means are taken from it


def _base_of(node: Node, nodes: set[Node]) -> Base:
    """What casts, and x - mean(x), are made of."""
    node = past_casts(node, nodes)
    if node.target in (operator.sub, torch.sub, "sub") and len(node.args) == 2:
        x, mean = node.args
        if isinstance(x, Node) and isinstance(mean, Node):
            source, of = past_casts(x, nodes), _mean_of(mean, nodes)
            if of is not None and past_casts(of, nodes) is source:
                nodes.add(node)
                return source, True
    return node, False


def _mean_of(node: Node, nodes: set[Node]) -> Node | None:
    """x of mean(x, -1, keepdim=True)."""
    if node.target not in (torch.mean, "mean"):
        return None
    given = arguments(node, ("input", "dim", "keepdim"))
    if given["dim"] not in (-1, [-1], (-1,)) or given["keepdim"] is not True:
        return None
    nodes.add(node)
    return given["input"] if isinstance(given["input"], Node) else None


def _rsqrt_of_mean_square(node: Node, base: Base, nodes: set[Node]) -> float | None:
    """The epsilon of rsqrt(mean(x^2) + epsilon)."""
    if node.target not in (torch.rsqrt, "rsqrt"):
        return None
    total = node.args[0]
    nodes.add(node)
    if not isinstance(total, Node) or total.target not in ADDS:
        return None
    nodes.add(total)
    for mean, epsilon in either_way(total):
        square = _mean_of(mean, nodes) if isinstance(mean, Node) else None
        if square is None or not isinstance(epsilon, float):
            continue
        nodes.add(square)
        return epsilon if _is_square_of(square, base, nodes) else None
    return None


def _is_square_of(node: Node, base: Base, nodes: set[Node]) -> bool:
    powers = (torch.pow, operator.pow, "pow")
    if node.target in powers and node.args[1] == 2:
        of = node.args[:1]
    elif node.target in PRODUCTS:
        of = node.args[:2]
    elif node.target in (torch.square, "square"):
        of = node.args[:1]
    else:
        return False
    return all(isinstance(one, Node) and _base_of(one, nodes) == base for one in of)
