"""Activations and gates, however a model writes them: told by what they make of numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from gemmd._layers.chain import activation_between, random_rows
from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import (
    PRODUCTS,
    alike,
    arguments,
    either_way,
    evaluate,
    is_cast,
    is_closed,
    sample,
)
from gemmd._layers.graph.products import is_product
from gemmd.ops import Activation

if TYPE_CHECKING:
    from gemmd._layers.graph.reading import Reading

# What activations are written with, of one tensor and numbers.
_POINTWISE = {
    F.gelu, F.silu, F.relu, torch.relu, torch.sigmoid, torch.tanh, F.tanh, F.sigmoid, torch.erf,
    torch.pow, torch.add, torch.mul, operator.mul, operator.add, operator.truediv, operator.pow,
    operator.sub, torch.div, torch.sub, torch.clamp, torch.exp, operator.neg, torch.square,
}  # fmt: skip
_POINTWISE_METHODS = {
    "add", "clamp", "contiguous", "div", "erf", "exp", "mul", "pow", "relu", "sigmoid", "square", "sub",
    "tanh", "to", "float", "type_as",
}  # fmt: skip


def activation(reading: Reading, node: Node) -> Found | None:
    """What a product goes through up to this node, if it is an activation that layers have, or
    nothing at all.
    """
    nodes = set[Node]()
    product = _source_of(reading, node, nodes)
    if product is None or not _is_pointwise(node) or not is_closed(node, nodes, product):
        return None
    if sample(node).dtype is not sample(product).dtype:
        return None
    activation = _activation_of(reading, product, nodes, node)
    if activation is None:
        return None
    name, alpha = activation
    return Found("activation", node, (product,), frozenset(nodes), name, alpha=alpha)


def _activation_of(
    reading: Reading, source: Node, nodes: Iterable[Node], result: Node
) -> tuple[Activation, float] | None:
    """What nodes between the two make of numbers, and SiLU's factor."""
    x = random_rows(64, "cpu")
    values = {source: x.clone()}  # some write in place
    try:
        for one in sorted(nodes, key=lambda one: reading.order[one]):
            found = reading.found.get(one)
            if is_cast(one) or (found is not None and found.kind == "view"):
                values[one] = values[one.all_input_nodes[0]]
            else:
                values[one] = evaluate(one, values)
        found_name = activation_between(x, values[result])
    except Exception:  # it takes something else than a tensor of any shape
        return None
    if found_name is not None:
        return found_name, 1.0
    alpha = _alpha_of(x, values[result])
    return None if alpha is None else ("silu", alpha)


def _alpha_of(x: Any, y: Any) -> float | None:
    """That of x * sigmoid(alpha * x), as CLIP has it instead of GELU."""
    at = int((x.flatten() - 1).abs().argmin())
    share = float(y.flatten()[at] / x.flatten()[at])
    if not 0 < share < 1:
        return None
    alpha = round(math.log(share / (1 - share)) / float(x.flatten()[at]), 4)
    same = alpha > 0 and torch.allclose(y, x * torch.sigmoid(alpha * x), rtol=1e-4, atol=1e-4)
    return alpha if same else None


def _source_of(reading: Reading, node: Node, nodes: set[Node]) -> Node | None:
    """The one product that all of a pointwise expression is made of."""
    found = reading.found.get(node)
    if found is not None and found.kind == "linear":
        return node
    if found is not None and found.kind not in ("activation", "view"):
        return None
    is_view = found is not None and found.kind == "view"
    if not _is_pointwise(node) and not is_view:
        return None
    nodes.add(node)
    of = node.all_input_nodes[:1] if is_view else node.all_input_nodes  # the others are extents
    sources = {_source_of(reading, one, nodes) for one in of}
    return sources.pop() if len(sources) == 1 else None


def gate(reading: Reading, node: Node) -> Found | None:
    """activation(gate) * up of two products, or of one's halves."""
    if node.target not in PRODUCTS:
        return None
    for one, other in either_way(node):
        if not isinstance(one, Node) or not isinstance(other, Node):
            continue
        found = reading.found.get(one)
        if found is not None and found.kind == "activation" and len(one.users) == 1:
            gate, nodes = found.inputs[0], found.nodes | {node}
            if is_product(reading, other) and alike(node, other) and gate is not other:
                same_x = reading.found[gate].inputs == reading.found[other].inputs
                if same_x and len(other.users) == 1:
                    return replace(found, kind="gate", root=node, inputs=(gate, other), nodes=nodes)
    return _gate_of_halves(reading, node)


def _gate_of_halves(reading: Reading, node: Node) -> Found | None:
    for one, up in either_way(node):
        if not isinstance(one, Node) or not isinstance(up, Node) or len(one.users) != 1:
            continue
        nodes = {node}
        gate = one
        while gate.target is not operator.getitem and _is_pointwise(gate):
            nodes.add(gate)
            if len(gate.all_input_nodes) != 1:
                break
            gate = gate.all_input_nodes[0]
        halves = _halves_of(gate, up)
        if halves is None or not is_product(reading, halves):
            continue
        activation = _activation_of(reading, gate, nodes - {node}, one)
        if activation is None:
            return None
        nodes |= {gate, up, gate.args[0]}
        if not is_closed(node, nodes, halves):
            return None
        name, alpha = activation
        return Found("gate", node, (halves,), frozenset(nodes), name, alpha=alpha)
    return None


def _is_pointwise(node: Node) -> bool:
    if node.op == "call_method":
        return node.target in _POINTWISE_METHODS
    return node.op == "call_function" and node.target in _POINTWISE


def _halves_of(gate: Any, up: Any) -> Node | None:
    """What is cut into two along its columns, of which these are the first and the second."""
    if not isinstance(gate, Node) or not isinstance(up, Node):
        return None
    if gate.target is not operator.getitem or up.target is not operator.getitem:
        return None
    cut = gate.args[0]
    if cut is not up.args[0] or (gate.args[1], up.args[1]) != (0, 1) or not isinstance(cut, Node):
        return None
    if cut.target not in (torch.chunk, "chunk"):
        return None
    given = arguments(cut, ("input", "chunks", "dim"))
    if given["chunks"] != 2 or given["dim"] != -1 or not isinstance(given["input"], Node):
        return None
    return given["input"]
