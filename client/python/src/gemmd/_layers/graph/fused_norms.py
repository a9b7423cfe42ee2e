"""Norms that a model spells out and no block has, as one function of torch's each: those of an
attention's heads are eight kernels otherwise. For graphs that run as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import sample
from gemmd._layers.graph.reading import Reading
from gemmd._layers.graph.writes import Writes

_FEW = 2  # nodes, which are not worth it


def fuse_norms(
    reading: Reading, writes: Writes, taken: set[Node], now: Mapping[Node, Node]
) -> None:
    """`taken`: what blocks compute. `now`: what stands where their outputs did."""
    gone = set(taken)
    for one in reversed(reading.found.values()):  # one with a weight before that without in it
        if one.kind != "norm" or len(one.nodes) <= _FEW or one.nodes & gone:
            continue
        if not writes.lie_between(reading.order[one.root], one.nodes) and _fuse(reading, one, now):
            gone |= one.nodes


def _fuse(reading: Reading, norm: Found, now: Mapping[Node, Node]) -> bool:
    """Whether torch has it."""
    source = norm.inputs[0]
    dtype = sample(source).dtype
    vectors = [one for one in (norm.weight, norm.bias) if one is not None]
    kinds = {one.dtype for one in vectors}
    if kinds not in (set(), {dtype}, {torch.float32}):
        return False
    if not norm.centered and (norm.bias is not None or not hasattr(torch, "rms_norm")):
        return False
    nodes = {id(reading.constant(one)): one for node in norm.nodes for one in node.all_input_nodes}
    if not all(id(one) in nodes for one in vectors):  # one that is nowhere in the graph
        return False
    graph, widened = reading.graph, kinds not in (set(), {dtype})
    with graph.inserting_before(norm.root):
        x: Any = now.get(source, source)
        if widened:
            x = graph.call_method("to", (x, torch.float32))
        weight, bias = (None if one is None else nodes[id(one)] for one in (norm.weight, norm.bias))
        shape = (int(sample(source).shape[-1]),)
        if norm.centered:
            y = graph.call_function(torch.layer_norm, (x, shape, weight, bias, norm.epsilon))
        else:
            y = graph.call_function(torch.rms_norm, (x, shape, weight, norm.epsilon))
        if widened:
            y = graph.call_method("to", (y, dtype))
    y.meta = dict(norm.root.meta)
    norm.root.replace_all_uses_with(y)
    for node in sorted(norm.nodes, key=lambda node: -reading.order[node]):
        graph.erase_node(node)
    return True
