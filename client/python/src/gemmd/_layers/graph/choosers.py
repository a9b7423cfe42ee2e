"""Products that choose: a router's logits, of which the largest are looked for. FP8 would round
them, and other experts would be chosen.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import sample

_CHOICES = ("topk", "argmax", torch.topk, torch.argmax)
_MAXIMA = ("max", torch.max)  # of a dimension: a tuple, and the second of it are the places
_MOST_COLUMNS = 1024  # of a router; what has more are words, say, which a caller looks for himself


def choosers(graph: Graph, found: dict[Node, Found]) -> list[Found]:
    """The products among what is found that do."""
    todo = [one for node in graph.nodes if _chooses(node) for one in node.all_input_nodes]
    seen, products = set[Node](), list[Found]()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        one = found.get(node)
        if one is not None and one.kind == "norm":
            continue
        if one is not None and one.kind == "linear":
            if sample(node).shape[-1] <= _MOST_COLUMNS:
                products.append(one)
            continue
        todo += node.all_input_nodes
    return products


def _chooses(node: Node) -> bool:
    if node.target not in _MAXIMA:
        return node.target in _CHOICES
    return any(one.args[1:] in ((1,), ("indices",)) for one in node.users)
