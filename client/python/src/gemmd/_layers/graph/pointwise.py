"""Activations and gates, however a model writes them: told by what they make of numbers."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from gemmd._layers.chain import activation_between, random_rows
from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import (
    PRODUCTS,
    alike,
    either_way,
    evaluate,
    arguments,
    is_cast,
    is_closed,
)
from gemmd._layers.graph.products import is_product

if TYPE_CHECKING:
    from gemmd._layers.graph.reading import Reading

_DROPOUTS = (F.dropout, torch.dropout)
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
    if product is None or not alike(node, product) or not is_closed(node, nodes, product):
        return None
    x = random_rows(64, "cpu")
    try:
        values = {product: x.clone()}  # some write in place
        for one in sorted(nodes, key=lambda one: reading.order[one]):
            values[one] = _evaluate_in_float32(one, values)
        activation = activation_between(x, values[node])
    except Exception:  # it takes something else than a tensor of any shape
        return None
    if activation is None:
        return None
    return Found(
        "activation", node, (product,), frozenset(nodes), activation=activation
    )


def _source_of(reading: Reading, node: Node, nodes: set[Node]) -> Node | None:
    """The one product that all of a pointwise expression is made of."""
    if node in reading.found and reading.found[node].kind == "linear":
        return node
    if node in reading.found and reading.found[node].kind != "activation":
        return None
    if not _is_pointwise(node):
        return None
    nodes.add(node)
    sources = {_source_of(reading, one, nodes) for one in node.all_input_nodes}
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
                if len(other.users) == 1:
                    return Found("gate", node, (gate, other), nodes, found.activation)
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
        x = random_rows(64, "cpu")
        values = {gate: x.clone()}
        try:
            for step in sorted(nodes - {node}, key=lambda one: reading.order[one]):
                values[step] = _evaluate_in_float32(step, values)
            activation = activation_between(x, values[one])
        except Exception:  # as above
            return None
        if activation is None:
            return None
        nodes |= {gate, up, gate.args[0]}
        if not is_closed(node, nodes, halves):
            return None
        return Found("gate", node, (halves,), frozenset(nodes), activation, halves=True)
    return None


def _evaluate_in_float32(node: Node, values: dict[Node, Any]) -> Any:
    """The same, with casts left out."""
    if is_cast(node):
        return values[node.all_input_nodes[0]]
    return evaluate(node, values)


def _is_pointwise(node: Node) -> bool:
    if node.op == "call_method":
        return node.target in _POINTWISE_METHODS
    if node.target in _DROPOUTS:
        given = arguments(node, ("input", "p", "training"))
        return given["training"] is False or given["p"] == 0
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
