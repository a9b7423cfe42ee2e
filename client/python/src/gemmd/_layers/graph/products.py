"""Linears, and what is added to their results."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch.fx import Node

from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import ADDS, alike, arguments, either_way, sample
from gemmd._layers.graph.writes import is_view

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
    if weight.dtype is not sample(node).dtype:
        return None
    bias = reading.constant(bias)
    return Found("linear", node, (x,), frozenset((node,)), weight=weight, bias=bias)


def is_product(reading: Reading, node: Node) -> bool:
    return node in reading.found and reading.found[node].kind == "linear"


def add(reading: Reading, node: Node) -> Found | None:
    """A product plus something else of its shape."""
    if node.target not in ADDS:
        return None
    if len(node.args) != 2 or node.kwargs:
        return None
    for product, other in either_way(node):
        if not isinstance(other, Node) or not isinstance(product, Node):
            continue
        nodes = {node}
        product = _past_nothing(reading, product, nodes)
        if not is_product(reading, product) or len(product.users) != 1:
            continue
        if reading.constant(other) is not None or product is other:
            continue
        if alike(node, product) and alike(node, other) and _may_write(reading, node):
            return Found("add", node, (product, other), frozenset(nodes))
    return None


def _past_nothing(reading: Reading, node: Node, nodes: set[Node]) -> Node:
    """A product behind what leaves it as it is, such as dropout that is off."""
    found = reading.found.get(node)
    if found is None or found.kind != "activation" or found.activation != "none":
        return node
    if len(node.users) != 1:
        return node
    nodes |= found.nodes
    return found.inputs[0]


def _may_write(reading: Reading, node: Node) -> bool:
    """Whether nobody sees that `x += y` writes x."""
    if node.target is not operator.iadd:
        return True
    written = node.args[0]
    if not isinstance(written, Node) or written.op == "placeholder":
        return False
    before = (user for user in written.users if user is not node)
    return written in reading.found and not any(
        reading.order[user] > reading.order[node] or is_view(user) for user in before
    )
