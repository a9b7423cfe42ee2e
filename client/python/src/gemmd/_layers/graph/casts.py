"""What autocast does to a product's x, as a node of the graph: a block takes x in the type that torch
would multiply in.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from torch.fx import Graph, Node

from gemmd._layers.graph.nodes import is_product_call, multiplied, sample
from gemmd._layers.graph.writes import is_write


def say_casts(graph: Graph, constants: Container[Node]) -> None:
    """One for all products of an x, as long as nothing is written in place."""
    made = dict[tuple[Node, Any, int], Node]()
    writes = 0
    for node in list(graph.nodes):
        writes += is_write(node)
        x = multiplied(node) if is_product_call(node) else None
        if x is None or x in constants or not _is_cast_by_autocast(x, node):
            continue
        dtype = sample(node).dtype
        key = x, dtype, writes
        if key not in made:
            with graph.inserting_before(node):
                made[key] = graph.call_method("to", (x, dtype))
            made[key].meta = {"example_value": sample(x).to(dtype)}
        node.replace_input_with(x, made[key])


def _is_cast_by_autocast(x: Node, product: Node) -> bool:
    before, after = sample(x), sample(product)
    if before is None or after is None or before.dtype is after.dtype:
        return False
    return bool(before.is_floating_point() and after.is_floating_point())
