"""Norms by rows that models spell out, with casts wherever they have them:

    bias + weight * (x / sqrt(mean(x^2) + epsilon))

x may be what is left of something without its mean. Weight and bias may be missing, and the division
may be a product with rsqrt, a power of -1/2, or torch's `normalize`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

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

_DIFFERENCES = (operator.sub, torch.sub, "sub")
_QUOTIENTS = (operator.truediv, torch.div, torch.true_divide, "div", "true_divide")
_POWERS = (torch.pow, operator.pow, "pow")
_SQUARES = (torch.square, "square")
_ROOTS = (torch.sqrt, "sqrt")
_INVERSE_ROOTS = (torch.rsqrt, "rsqrt")
_INVERSES = (torch.reciprocal, "reciprocal")
_VARIANCES = (torch.var, "var")
# Of a norm whose epsilon is a least norm and not a part of the mean: where it matters, both give 0.
_SMALL = 1e-6


class _Base(NamedTuple):
    """What is normalised: a tensor, and whether its rows' means are taken from it first."""

    source: Node
    centered: bool


def spelt_norm(reading: Reading, node: Node) -> Found | None:
    nodes = {node}
    top = past_casts(node, nodes)
    bias, top = _vector_beside(reading, top, ADDS, nodes)
    weight, top = _vector_beside(reading, top, PRODUCTS, nodes)
    for base, epsilon, factor, within in (*_quotients(top, nodes), *_normalized(top, nodes)):
        within.discard(base.source)
        if not alike(node, base.source) or not is_closed(node, within):
            continue
        if factor != 1:
            weight = _times(reading, weight, factor, base.source)
        return Found(
            "norm", node, (base.source,), frozenset(within),
            weight=weight, bias=bias, centered=base.centered, epsilon=epsilon,
        )  # fmt: skip
    return None


def _vector_beside(
    reading: Reading, node: Node, targets: tuple[Any, ...], nodes: set[Node]
) -> tuple[Any, Node]:
    """The constant that a node is added to or multiplied by, and what it is done to; None, and the
    node itself, if there is none.
    """
    if node.target in targets:
        for one, other in either_way(node):
            vector = reading.constant(one)
            if vector is not None and vector.dim() == 1 and isinstance(other, Node):
                nodes.add(node)
                return vector, past_casts(other, nodes)
    return None, node


def _times(reading: Reading, weight: Any, factor: float, source: Node) -> Any:
    """A weight times a number; the number in each place if there is no weight."""
    if weight is not None:
        return reading.computed(weight * factor, f"times {factor}", weight)
    of = sample(source)
    full = torch.full((int(of.shape[-1]),), factor, dtype=of.dtype, device=of.device)
    return reading.computed(full, f"{len(full)} times {factor}")


_Made = tuple[_Base, float, float, set[Node]]  # of what, epsilon, a factor behind, by which nodes


def _quotients(node: Node, nodes: set[Node]) -> Iterator[_Made]:
    """x over the root of its mean square, as a product or a quotient."""
    if node.target in PRODUCTS:
        pairs, of = tuple(either_way(node)), _total_under_inverse_root
    elif node.target in _QUOTIENTS and len(node.args) == 2 and not node.kwargs:
        pairs, of = ((node.args[0], node.args[1]),), _total_under_root
    else:
        return
    for x, factor in pairs:
        if not isinstance(x, Node) or not isinstance(factor, Node):
            continue
        within = nodes | {node}
        base = _base_of(x, within)
        total = of(past_casts(factor, within), within)
        epsilon = None if total is None else _epsilon_of(total, base, within)
        if epsilon is not None:
            yield base, epsilon, 1.0, within


def _normalized(node: Node, nodes: set[Node]) -> Iterator[_Made]:
    """`normalize(x, dim=-1)`, a number times it if there is one: a row's norm is that number then."""
    within = nodes | {node}
    factor: Any = 1.0
    if node.target in PRODUCTS:
        for one, other in either_way(node):
            if isinstance(one, (int, float)) and isinstance(other, Node):
                factor, node = float(one), past_casts(other, within)
                break
    if node.target is not F.normalize:
        return
    within.add(node)
    given = arguments(node, ("input", "p", "dim", "eps", "out"))
    x, least = given["input"], 1e-12 if given["eps"] is None else given["eps"]
    if given["p"] not in (None, 2) or given["out"] is not None or not isinstance(x, Node):
        return
    if not _is_last(given["dim"]) or not least <= _SMALL:
        return
    columns = int(sample(x).shape[-1])
    base = _base_of(x, within)
    yield base, least**2 / columns, factor / math.sqrt(columns), within


def _is_last(dim: Any) -> bool:
    """Whether an argument `dim` says the last one alone, of tensors of any shape."""
    return dim in (-1, [-1], (-1,))


def _base_of(node: Node, nodes: set[Node]) -> _Base:
    """What casts, and x - mean(x), are made of."""
    node = past_casts(node, nodes)
    if node.target in _DIFFERENCES and len(node.args) == 2:
        x, mean = node.args
        if isinstance(x, Node) and isinstance(mean, Node):
            source, of = past_casts(x, nodes), _mean_of(past_casts(mean, nodes), nodes)
            if of is not None and past_casts(of, nodes) is source:
                nodes.add(node)
                return _Base(source, True)
    return _Base(node, False)


def _mean_of(node: Node, nodes: set[Node]) -> Node | None:
    """x of mean(x, -1, keepdim=True)."""
    if node.target not in (torch.mean, "mean"):
        return None
    given = arguments(node, ("input", "dim", "keepdim"))
    x = given["input"]
    if not isinstance(x, Node) or not _is_last(given["dim"]) or given["keepdim"] is not True:
        return None
    nodes.add(node)
    return x


def _total_under_inverse_root(node: Node, nodes: set[Node]) -> Node | None:
    """t of 1 / sqrt(t)."""
    nodes.add(node)
    if node.target in _INVERSE_ROOTS or _is_power(node, -0.5):
        return _first(node)
    if node.target in _INVERSES or _is_power(node, -1):
        root = _first(node)
    elif node.target in _QUOTIENTS and len(node.args) == 2 and node.args[0] == 1:
        root = node.args[1] if isinstance(node.args[1], Node) else None
    else:
        return None
    return None if root is None else _total_under_root(past_casts(root, nodes), nodes)


def _total_under_root(node: Node, nodes: set[Node]) -> Node | None:
    """t of sqrt(t)."""
    nodes.add(node)
    return _first(node) if node.target in _ROOTS or _is_power(node, 0.5) else None


def _is_power(node: Node, exponent: float) -> bool:
    return node.target in _POWERS and len(node.args) == 2 and node.args[1] == exponent


def _first(node: Node) -> Node | None:
    return node.args[0] if node.args and isinstance(node.args[0], Node) else None


def _epsilon_of(total: Node, base: _Base, nodes: set[Node]) -> float | None:
    """That of mean(x^2) + epsilon."""
    total = past_casts(total, nodes)
    if total.target not in ADDS:
        return None
    nodes.add(total)
    for mean, epsilon in either_way(total):
        if isinstance(mean, Node) and isinstance(epsilon, float):
            return epsilon if _is_mean_square(past_casts(mean, nodes), base, nodes) else None
    return None


def _is_mean_square(node: Node, base: _Base, nodes: set[Node]) -> bool:
    if base.centered and node.target in _VARIANCES:
        given = arguments(node, ("input", "dim", "unbiased", "keepdim", "correction"))
        x = given["input"]
        by_count = given["unbiased"] is False or given["correction"] == 0
        if not isinstance(x, Node) or not by_count or given["keepdim"] is not True:
            return False
        nodes.add(node)
        return _is_last(given["dim"]) and past_casts(x, nodes) is base.source
    square = _mean_of(node, nodes)
    if square is None:
        return False
    square = past_casts(square, nodes)
    nodes.add(square)
    return _is_square_of(square, base, nodes)


def _is_square_of(node: Node, base: _Base, nodes: set[Node]) -> bool:
    if _is_power(node, 2) or node.target in _SQUARES:
        of = node.args[:1]
    elif node.target in PRODUCTS:
        of = node.args[:2]
    else:
        return False
    return all(isinstance(one, Node) and _base_of(one, nodes) == base for one in of)
