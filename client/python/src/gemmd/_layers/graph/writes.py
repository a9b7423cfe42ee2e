"""Who writes to tensors in place: what is made one call must not read one on the other side of that."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Set

import torch
from torch.fx import Graph, Node

from gemmd._layers.graph.nodes import sample, traced

_WRITERS = (
    operator.setitem, operator.iadd, operator.isub, operator.imul, operator.itruediv,
    operator.iand, operator.ior, operator.ixor, operator.ipow,
)  # fmt: skip
# By a positional argument.
_MAYBE_WRITERS = {"relu", "relu6", "silu", "elu", "selu", "celu", "leaky_relu", "mish", "dropout"}
# Whose results may be memory of what they are given.
_VIEWS = {
    "getitem", "getattr", "view", "view_as", "reshape", "reshape_as", "transpose", "permute", "flatten",
    "unflatten", "squeeze", "unsqueeze", "chunk", "split", "tensor_split", "hsplit", "vsplit", "narrow",
    "select", "expand", "expand_as", "broadcast_to", "t", "movedim", "moveaxis", "swapaxes", "swapdims",
    "unbind", "unfold", "diagonal", "as_strided", "alias", "detach", "contiguous", "to", "type",
    "type_as", "float", "half", "bfloat16", "real", "imag", "view_as_real", "view_as_complex", "dropout",
    "ravel", "adjoint", "squeeze_",
}  # fmt: skip


def name_of(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def is_write(node: Node) -> bool:
    """Whether it changes its first tensor."""
    if node.op not in ("call_function", "call_method"):
        return bool(node.op == "call_module")  # who knows
    if node.target in _WRITERS or node.kwargs.get("out") is not None:
        return True
    name = name_of(node)
    of_python = getattr(node.target, "__module__", "") == operator.and_.__module__
    in_place = name.endswith("_") and not name.endswith("__") and not of_python
    said = node.kwargs.get("inplace") is True
    return bool(in_place or said or (name in _MAYBE_WRITERS and True in node.args[1:]))


def written(node: Node) -> list[Node]:
    """What it changes."""
    return node.all_input_nodes[:1] if is_write(node) else []


def is_view(node: Node) -> bool:
    """Whether its result may be memory of what it is given."""
    return name_of(node) in _VIEWS or is_write(node) or not isinstance(sample(node), torch.Tensor)


class Memory:
    """Which of a graph's tensors may share memory.

    Parameters
    ----------
    graph : torch.fx.Graph
    within : set of Node
        What becomes calls, whose results are their own.

    Attributes
    ----------
    changed : set of Node
        What the graph writes to, as `of` has it.
    """

    def __init__(self, graph: Graph, within: Set[Node] = frozenset()) -> None:
        self._joined = {node: node for node in graph.nodes}
        for node in graph.nodes:
            if node.op in ("placeholder", "output", "get_attr") or node in within:
                continue
            if is_view(node) and not isinstance(traced(node), int | torch.SymInt):
                for one in node.all_input_nodes:
                    self._joined[self.of(node)] = self.of(one)

        self.changed = {self.of(one) for node in graph.nodes for one in written(node)}

    def of(self, node: Node) -> Node:
        """One that stands for all which may share it."""
        while self._joined[node] is not node:
            node = self._joined[node]
        return node


class Writes:
    """A graph's writes. `within`: nodes that become calls, which write nothing."""

    def __init__(self, graph: Graph, order: dict[Node, int], within: set[Node]) -> None:
        self._order = order
        self._memory = Memory(graph, within)
        self._writes = [
            (order[node], one)
            for node in graph.nodes
            if node not in within
            for one in written(node)
        ]

    def lie_between(self, place: float, nodes: Iterable[Node]) -> bool:
        """Whether a node reads what is written between it and that place in the graph."""
        of = self._memory.of
        for node in nodes:
            first, last = sorted((place, self._order[node]))
            changed = {of(one) for at, one in self._writes if first < at < last}
            if any(of(one) in changed for one in node.all_input_nodes):
                return True
        return False
