"""Linears, and what is added to their results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import (
    ADDS,
    ADDS_IN_PLACE,
    MATMULS,
    PRODUCTS,
    alike,
    arguments,
    either_way,
    sample,
)
from gemmd._layers.graph.views import behind_views
from gemmd._layers.graph.writes import is_view
from gemmd._layers.tree import FLOATS

if TYPE_CHECKING:
    from gemmd._layers.graph.reading import Reading


def linear(reading: Reading, node: Node) -> Found | None:
    if node.target is not F.linear:
        return None
    given = arguments(node, ("input", "weight", "bias"))
    x, weight, bias = given["input"], reading.constant(given["weight"]), given["bias"]
    if weight is None or (bias is not None and reading.constant(bias) is None):
        return None
    if weight.dim() != 2 or not alike(node, x, columns=False):
        return None
    if not _may_multiply(node, weight):
        return None
    bias = reading.constant(bias)
    return Found("linear", node, (x,), frozenset((node,)), weight=weight, bias=bias)


def addmm(reading: Reading, node: Node) -> Found | None:
    """bias + x @ weight of matrices, as GPT-2 has it."""
    if node.target is not torch.addmm:
        return None
    given = arguments(node, ("input", "mat1", "mat2", "beta", "alpha"))
    if given["beta"] not in (None, 1) or given["alpha"] not in (None, 1):
        return None
    bias = reading.constant(given["input"])
    if bias is None or bias.dim() != 1:
        return None
    return _by_columns(reading, node, given["mat1"], given["mat2"], bias)


def matmul(reading: Reading, node: Node) -> Found | None:
    """x @ weight."""
    if node.target not in MATMULS:
        return None
    if len(node.args) != 2 or node.kwargs:
        return None
    x, weight = node.args
    return _by_columns(reading, node, x, weight, None)


def _by_columns(reading: Reading, node: Node, x: Any, weight: Any, bias: Any) -> Found | None:
    """With a weight [k, n]."""
    given = reading.constant(weight)
    if given is None or given.dim() != 2 or not alike(node, x, columns=False):
        return None
    if not _may_multiply(node, given):
        return None
    by_rows = reading.computed(given.t(), "t", given)
    return Found("linear", node, (x,), frozenset((node,)), weight=by_rows, bias=bias)


def _may_multiply(product: Node, weight: Any) -> bool:
    """Whether the weight has the result's type, or autocast casts it."""
    dtype = sample(product).dtype
    return weight.dtype is dtype or (weight.dtype in FLOATS and dtype in FLOATS)


def shifted(reading: Reading, node: Node) -> Found | None:
    """A product without a bias, and a number for each column that is added to it."""
    if node.target not in ADDS or node.target in ADDS_IN_PLACE:
        return None
    for product, vector in _with_vector(reading, node):
        if product.bias is None:
            return replace(product, root=node, nodes=product.nodes | {node}, bias=vector)
    return None


def scaled(reading: Reading, node: Node) -> Found | None:
    """A product whose columns are multiplied by a number each, as LayerScale does it."""
    if node.target not in PRODUCTS:
        return None
    for product, vector in _with_vector(reading, node):
        weight, bias = product.weight, product.bias
        times = reading.computed(weight * vector[:, None], "scaled", weight, vector)
        if bias is not None:
            bias = reading.computed(bias * vector, "scaled", bias, vector)
        return replace(product, root=node, nodes=product.nodes | {node}, weight=times, bias=bias)
    return None


def _with_vector(reading: Reading, node: Node) -> Iterator[tuple[Found, Any]]:
    for product, vector in either_way(node):
        if not isinstance(product, Node) or not is_product(reading, product):
            continue
        given, n = reading.constant(vector), sample(node).shape[-1]
        if given is None or tuple(given.shape) != (n,) or len(product.users) != 1:
            continue
        if alike(node, product):
            yield reading.found[product], given


def is_product(reading: Reading, node: Node) -> bool:
    return node in reading.found and reading.found[node].kind == "linear"


def add(reading: Reading, node: Node) -> Found | None:
    """A product, or what is made of one, plus something else of its shape."""
    if node.target not in ADDS:
        return None
    made: dict[str, list[Found]] = {"linear": [], "add": [], "norm": [], "experts": []}
    for one, other in either_way(node):
        if not isinstance(other, Node) or not isinstance(one, Node) or one is other:
            continue
        nodes = {node}
        root = behind_views(reading, one, nodes)
        found = reading.found.get(root)
        if found is None or found.kind not in made or reading.constant(other) is not None:
            continue
        if found.kind == "linear" and len(root.users) != 1:
            continue
        if alike(node, one) and alike(node, other) and _may_write(reading, node):
            made[found.kind].append(Found("add", node, (root, other), frozenset(nodes)))
    return next((one for kind in made.values() for one in kind), None)


def _may_write(reading: Reading, node: Node) -> bool:
    """Whether nobody sees that `x += y` writes x."""
    if node.target not in ADDS_IN_PLACE:
        return True
    written = node.args[0]
    if not isinstance(written, Node) or written.op == "placeholder":
        return False
    before = (user for user in written.users if user is not node)
    return written in reading.found and not any(
        reading.order[user] > reading.order[node] or is_view(user) for user in before
    )
