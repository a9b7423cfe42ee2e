"""Nodes that a graph does without: those that leave a tensor as it is, such as dropout that is off, and
those that ask a tensor for an extent that is known.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from gemmd._layers.graph.nodes import arguments, is_cast, sample

_DROPOUTS = (F.dropout, torch.dropout, F.dropout1d, F.dropout2d, F.dropout3d)


def drop_nothings(graph: Graph) -> None:
    """Takes them out."""
    for node in list(graph.nodes):
        if _is_dropout_that_is_off(node) or _is_cast_to_its_own(node):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph.erase_node(node)
    _name_extents(graph)


def _name_extents(graph: Graph) -> None:
    """An extent of what is computed is often one of the inputs'. Who takes it from there does not wait
    for what is computed.
    """
    given = dict[str, Node]()
    for node in list(graph.nodes):
        value = node.meta.get("example_value")
        if not isinstance(value, torch.SymInt):
            continue
        if node.op == "placeholder":
            given[str(value)] = node
        elif str(value) in given and node.op in ("call_function", "call_method"):
            node.replace_all_uses_with(given[str(value)])
            graph.erase_node(node)
    for node in reversed(list(graph.nodes)):
        value = node.meta.get("example_value")
        if node.op != "call_method" or node.target != "size":
            continue
        if isinstance(value, tuple) and all(str(one) in given or type(one) is int for one in value):
            extents = tuple(one if type(one) is int else given[str(one)] for one in value)
            for user in list(node.users):
                _replace(user, node, extents)
        if not node.users:
            graph.erase_node(node)


def _replace(user: Node, node: Node, by: tuple[Any, ...]) -> None:
    def replaced(one: Node) -> Any:
        return by if one is node else one

    user.args, user.kwargs = map_arg((user.args, user.kwargs), replaced)


def _is_dropout_that_is_off(node: Node) -> bool:
    if node.op != "call_function" or node.target not in _DROPOUTS:
        return False
    given = arguments(node, ("input", "p", "training"))
    return (given["training"] is False or given["p"] == 0) and len(node.all_input_nodes) == 1


def _is_cast_to_its_own(node: Node) -> bool:
    """To the type and the device that the tensor has: torch returns the tensor itself then."""
    if not is_cast(node) or node.kwargs.get("copy") or "memory_format" in node.kwargs:
        return False
    before, after = sample(node.all_input_nodes[0]), sample(node)
    if before is None or after is None or True in node.args[1:]:
        return False
    return bool(before.dtype is after.dtype and before.device == after.device)
