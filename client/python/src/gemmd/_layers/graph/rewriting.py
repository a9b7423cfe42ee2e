"""A graph with calls of blocks in it.

Rows come in groups, [batch, tokens, columns]: a block's result has those of its inputs, or none if they
differ.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from gemmd._layers import torch_ops
from gemmd._layers.blocks.block import Block
from gemmd._layers.graph.calls import calling
from gemmd._layers.graph.nodes import alike, sample
from gemmd._layers.graph.reading import Reading
from gemmd._layers.graph.regions import Region
from gemmd._layers.graph.writing import without_values
from gemmd._layers.graph.written import Written


def rewrite(
    reading: Reading, written: Written, block: Block, now: dict[Node, Node], as_op: bool
) -> list[tuple[Node, Any]]:
    """Puts a block's call in the place of its region. `now`: what stands where outputs of others
    did, and then of this one. `as_op`: the call is one that torch's compilers see through.

    Returns what stands for outputs, and samples that lie as these do.
    """
    graph, region = reading.graph, written.region
    given = [now.get(node, node) for node in region.inputs]
    last = next(node for node in reversed(graph.nodes) if node in given)
    parts = dict[Node, Node]()
    with graph.inserting_before(_behind(last)):
        if not _are_alike(region.inputs):
            given = [
                _flat(graph, node, one) for node, one in zip(region.inputs, given, strict=True)
            ]
        if not as_op:
            y = graph.call_function(calling(block, block.of_parts), tuple(given))
        else:
            x = given[0] if len(given) == 1 else graph.call_function(torch.cat, (given, -1))
            traced = block._traced
            assert traced is not None
            dtype = sample(region.outputs[0]).dtype
            arguments = (x, traced.key, block.out_features, dtype)
            y = graph.call_function(torch.ops.gemmd.layer, arguments)
        for node, columns in written.columns.items():
            part = y
            if columns != slice(0, block.out_features):
                part = graph.call_function(operator.getitem, (y, (..., columns)))
            parts[node] = _regrouped(graph, region, node, part, now)
    for node, part in parts.items():
        part.meta = dict(node.meta)
        node.replace_all_uses_with(part)
        now[node] = part
    for node in sorted(region.nodes(), key=lambda node: -reading.order[node]):
        graph.erase_node(node)
    return [
        (part, _columns_of(sample(part), block.out_features, written.columns[node]))
        for node, part in parts.items()
    ]


def _columns_of(like: Any, width: int, columns: slice) -> Any:
    """A sample of some of a block's columns."""
    with without_values([like]):
        return like.new_empty((*like.shape[:-1], width))[..., columns]


def call_directly(graph: Graph) -> None:
    """Layers that the model had in it, as blocks are called: by no op of torch's, which would copy
    each result.
    """
    for node in graph.nodes:
        for op in (torch.ops.gemmd.layer, torch.ops.gemmd.routed):
            if node.target in (op, op.default):
                *given, key, _, _ = node.args
                layer = torch_ops.layer_of(key)
                node.target, node.args = calling(layer, layer), tuple(given)


def _behind(node: Node) -> Node:
    """Where a call that needs it can stand: behind it, and behind all placeholders."""
    where = node.next
    while where.op in ("placeholder", "get_attr"):
        where = where.next
    return where


def _are_alike(inputs: Sequence[Node]) -> bool:
    return all(alike(inputs[0], one, columns=False) for one in inputs)


def _like(region: Region, node: Node) -> Node | None:
    """An input whose rows are in the same groups."""
    return next((one for one in region.inputs if alike(node, one, columns=False)), None)


def can_regroup(region: Region) -> bool:
    """Whether the extents are there that outputs have in front of their columns."""
    return all(
        sample(node).dim() == 2
        or all(isinstance(extent, int) for extent in sample(node).shape)
        or _like(region, node) is not None
        for node in region.outputs
    )


def _flat(graph: Graph, was: Node, node: Node) -> Node:
    if sample(was).dim() == 2:
        return node
    return graph.call_method("reshape", (node, -1, int(sample(was).shape[-1])))


def _regrouped(graph: Graph, region: Region, node: Node, part: Node, now: dict[Node, Node]) -> Node:
    """`part`, whose rows are grouped as the block's result, as those of `node`."""
    if _are_alike(region.inputs) and alike(region.inputs[0], node, columns=False):
        return part
    of = sample(node)
    like = _like(region, node)
    shape = list[Any]()
    for at, extent in enumerate(of.shape[:-1]):
        if isinstance(extent, int) or of.dim() == 2:
            shape.append(extent if isinstance(extent, int) else -1)
        else:
            assert like is not None
            shape.append(graph.call_method("size", (now.get(like, like), at)))
    return graph.call_method("reshape", (part, *shape, int(of.shape[-1])))
