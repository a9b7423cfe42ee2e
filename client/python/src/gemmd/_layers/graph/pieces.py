"""A graph cut at what has another shape with every call, as attentions over a cache that grows: the
pieces between two cuts have the same shapes again and again. Of an encoder all is one piece.

What a call's rows are, such as a batch, may be symbols of torch's: pieces have those extents, and no
others that change.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from gemmd._layers.graph.growth import is_growth
from gemmd._layers.graph.nodes import draws, evaluate, hint, is_known, sample, traced
from gemmd._layers.graph.writes import is_write
from gemmd._layers.graph.writing import without_values
from gemmd._layers.layer import Layer

_LEAST = 3  # nodes of a piece that is worth a graph
# What torch is in from one node to another: none of a piece's may be left out of it.
_STATES = (
    "_enter", "_exit", "_set_grad", "set_grad", "_saved_tensors", "_set_fwd", "inference_mode",
)  # fmt: skip


class Limits(NamedTuple):
    """Of pieces: the type of the device that they run on, and the most bytes of what is copied for one."""

    device: str
    copied_bytes: int


@dataclass(frozen=True)
class Piece:
    """Attributes
    ----------
    nodes : tuple of Node
        In the graph's order.
    inputs, outputs : tuple of Node
        What it is given, and what of it others take.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


class Cut:
    """A graph's pieces.

    Parameters
    ----------
    graph : torch.fx.Graph
    layers : dict of Node to Layer
        Calls of layers: their rows are the calls'.
    stay : container of Node
        Inputs that lie where they lay in every call.
    limits : Limits

    Attributes
    ----------
    symbols : set
        Of the pieces' extents.
    order : list of Node or Piece
        All of the graph but its placeholders, as it can run. Empty where it has no piece with a layer.
    """

    def __init__(
        self, graph: Graph, layers: Mapping[Node, Layer], stay: Container[Node], limits: Limits
    ) -> None:
        self._layers, self._stay, self._limits = layers, stay, limits
        self._fixed = set[Node]()
        self.symbols = {
            one for node in layers for of in node.all_input_nodes for one in symbols(of)
        }
        self.order = list[Node | Piece]()
        calls = [one for one in graph.nodes if one.op not in ("placeholder", "get_attr", "output")]
        if not layers or any(is_write(one) or _is_state(one) for one in calls):
            return
        _complete(calls, layers)
        self._find_fixed(calls)
        order = list(self._ordered(calls))
        within = {node for one in order if isinstance(one, Piece) for node in one.nodes}
        if not within.isdisjoint(layers):
            self.order = order

    @property
    def pieces(self) -> list[Piece]:
        return [one for one in self.order if isinstance(one, Piece)]

    def stays(self, node: Node) -> bool:
        """Whether a piece's input lies where it lay in every call."""
        return node in self._stay or node.op == "get_attr"

    def _find_fixed(self, calls: list[Node]) -> None:
        outside = set[Node]()
        while True:
            self._fixed.clear()
            for node in calls:
                if node not in outside and self._is_fixed(node):
                    self._fixed.add(node)
            parted = {node for node in self._fixed if self._is_parted(node)}
            if not parted:
                return
            outside |= parted

    def _is_parted(self, node: Node) -> bool:
        """Whether it is several tensors, and not all that takes them is within pieces."""
        several = sample(node) is None and node not in self._layers
        return several and not self._fixed.issuperset(node.users)

    def _is_fixed(self, node: Node) -> bool:
        of_torch = bool(_tensors(node)) and is_known(node)
        is_alike = not draws(node) and not is_growth(node)  # in each call
        if not (of_torch and is_alike) and node not in self._layers:
            return False
        return self._can_be_within(node) and all(map(self._can_be_given, node.all_input_nodes))

    def _can_be_within(self, node: Node) -> bool:
        here = all(one.device.type == self._limits.device for one in _tensors(node))
        return here and symbols(node) <= self.symbols

    def _can_be_given(self, node: Node) -> bool:
        if node in self._fixed:
            return True
        tensor = sample(node)
        if tensor is None:
            return _is_number(node) and self._can_be_within(node)
        few = self.stays(node) or _nbytes(tensor) <= self._limits.copied_bytes
        return few and self._can_be_within(node)

    def _ordered(self, calls: list[Node]) -> Iterator[Node | Piece]:
        """Others in their own order, and before each all that can run of the rest, if it needs some."""
        waiting = [one for one in calls if one in self._fixed]
        done = {one for one in calls[0].graph.nodes if one not in set(calls)} if calls else set()
        for node in [*(one for one in calls if one not in self._fixed), None]:
            if node is None or not done.issuperset(node.all_input_nodes):
                ready = list[Node]()
                for one in waiting:
                    if done.issuperset(one.all_input_nodes):
                        ready.append(one)
                        done.add(one)
                waiting = [one for one in waiting if one not in done]
                yield from self._as_pieces(ready)
            if node is not None:
                yield node
                done.add(node)

    def _as_pieces(self, nodes: list[Node]) -> Iterator[Node | Piece]:
        if len(nodes) < _LEAST:
            yield from nodes
            return
        within = set(nodes)
        inputs = dict.fromkeys(
            of for node in nodes for of in node.all_input_nodes if of not in within
        )
        outputs = [node for node in nodes if any(user not in within for user in node.users)]
        yield Piece(tuple(nodes), tuple(inputs), tuple(outputs))


def _complete(calls: list[Node], layers: Mapping[Node, Layer]) -> None:
    """With samples of what was put into the graph."""
    for node in calls:
        if "example_value" in node.meta:
            continue
        given = [_tensors(one) for one in node.all_input_nodes]
        if not given or not all(given):
            continue
        values = {one: one.meta["example_value"] for one in node.all_input_nodes}
        with suppress(Exception), without_values(given[0]):
            if node in layers:
                x = given[0][0]
                made = x.new_empty((*x.shape[:-1], layers[node].out_features))
            else:
                made = evaluate(node, values)
            node.meta["example_value"] = made


def module_of(owner: GraphModule, piece: Piece) -> GraphModule:
    """A piece as a function of its inputs; its outputs are a tuple."""
    graph, now = Graph(), dict[Node, Node]()
    for node in piece.inputs:
        now[node] = graph.placeholder(node.name)
    for node in piece.nodes:
        now[node] = graph.node_copy(node, lambda one: now[one])
    graph.output(tuple(now[node] for node in piece.outputs))
    return GraphModule(owner, graph)


def joined(owner: GraphModule, cut: Cut, calls: Sequence[Any]) -> GraphModule:
    """The graph with these calls in the places of its pieces."""
    graph, now, at = Graph(), dict[Node, Node](), 0
    for node in owner.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            now[node] = graph.node_copy(node, lambda one: now[one])
    for one in cut.order:
        if isinstance(one, Node):
            now[one] = graph.node_copy(one, lambda of: now[of])
            continue
        results = graph.call_function(calls[at], tuple(now[of] for of in one.inputs))
        at += 1
        for which, node in enumerate(one.outputs):
            now[node] = graph.call_function(operator.getitem, (results, which))
    last = next(one for one in reversed(owner.graph.nodes) if one.op == "output")
    graph.node_copy(last, lambda one: now[one])
    return GraphModule(owner, graph)


def symbols(node: Node) -> set[Any]:
    """Of a node's extents, or of the number that it is."""
    found = set[Any]()
    for one in (*_tensors(node), traced(node)):
        for extent in (*one.shape, *one.stride()) if isinstance(one, torch.Tensor) else (one,):
            if isinstance(extent, torch.SymInt):
                expression = getattr(extent.node, "expr", None)  # a nested tensor's has none
                found |= {str(extent)} if expression is None else expression.free_symbols
    return found


def _tensors(node: Node) -> tuple[Any, ...]:
    """The tensor that a node is, or those of a tuple of nothing else."""
    found = traced(node)
    several = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(several) if all(isinstance(one, torch.Tensor) for one in several) else ()


def _nbytes(one: Any) -> int:
    """As many as it has in the call that is traced."""
    return math.prod(hint(extent) or 1 for extent in one.shape) * int(one.element_size())


def _is_number(node: Node) -> bool:
    return isinstance(traced(node), (int, torch.SymInt))


def _is_state(node: Node) -> bool:
    return str(getattr(node.target, "__name__", node.target)).startswith(_STATES)
