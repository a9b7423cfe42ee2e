"""Rows in other groups: [batch, tokens, k] as [batch * tokens, k], and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import sample

if TYPE_CHECKING:
    from gemmd._layers.graph.reading import Reading

_REGROUPS = ("view", "reshape", "flatten", "unflatten", torch.reshape, torch.flatten)


def regrouped(reading: Reading, node: Node) -> Found | None:
    if node.target not in _REGROUPS or not isinstance(node.args[0], Node):
        return None
    x = node.args[0]
    before, after = sample(x), sample(node)
    if before is None or after is None or reading.constant(x) is not None:
        return None
    columns = before.shape[-1:], after.shape[-1:]
    whole = before.dim() > 1 and after.dim() > 1 and all(isinstance(one[0], int) for one in columns)
    if not whole or columns[0] != columns[1]:
        return None
    return Found("view", node, (x,), frozenset((node,)))


def behind_views(reading: Reading, node: Node, nodes: set[Node]) -> Node:
    """What a node regroups the rows of, if nobody else takes what lies between."""
    found = reading.found.get(node)
    while found is not None and found.kind == "view" and len(node.users) == 1:
        nodes.add(node)
        node = found.inputs[0]
        found = reading.found.get(node)
    return node
