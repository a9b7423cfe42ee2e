"""Who writes to tensors in place: what is made one call must not read one on the other side of that."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch.fx import Graph, Node

from gemmd._layers.graph.nodes import sample

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


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def is_write(node: Node) -> bool:
    """Whether it changes its first tensor."""
    if node.op not in ("call_function", "call_method"):
        return bool(node.op == "call_module")  # who knows
    if node.target in _WRITERS or node.kwargs.get("out") is not None:
        return True
    name = _name(node)
    of_python = getattr(node.target, "__module__", "") == operator.and_.__module__
    in_place = name.endswith("_") and not name.endswith("__") and not of_python
    said = node.kwargs.get("inplace") is True
    return bool(in_place or said or (name in _MAYBE_WRITERS and True in node.args[1:]))


def is_view(node: Node) -> bool:
    """Whether its result may be memory of what it is given."""
    return _name(node) in _VIEWS or is_write(node) or not isinstance(sample(node), torch.Tensor)


class Writes:
    """A graph's writes, and which of its tensors may share memory."""

    def __init__(self, graph: Graph, order: dict[Node, int], within: set[Node]) -> None:
        """`within`: nodes that become calls, which write nothing."""
        self._order = order
        self._joined = {node: node for node in graph.nodes}
        self._writes = list[tuple[int, Node]]()
        for node in graph.nodes:
            if node in within or node.op in ("placeholder", "output", "get_attr"):
                continue
            if is_write(node):
                self._writes += [(order[node], one) for one in node.all_input_nodes[:1]]
            if is_view(node):
                for one in node.all_input_nodes:
                    self._joined[self._head(node)] = self._head(one)

    def _head(self, node: Node) -> Node:
        while self._joined[node] is not node:
            node = self._joined[node]
        return node

    def lie_between(self, place: float, nodes: Iterable[Node]) -> bool:
        """Whether a node reads what is written between it and that place in the graph."""
        for node in nodes:
            first, last = sorted((place, self._order[node]))
            written = {self._head(one) for at, one in self._writes if first < at < last}
            if any(self._head(one) in written for one in node.all_input_nodes):
                return True
        return False
