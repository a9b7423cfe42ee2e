"""A graph, the values of its parameters, and what gemmd could do of it.

What torch computes of parameters alone counts as a parameter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Hashable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from gemmd._layers.graph import (
    norms,
    pointwise,
    products,
    routers,
    spelt_norms,
    views,
)
from gemmd._layers.graph.casts import say_casts
from gemmd._layers.graph.choosers import choosers
from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import evaluate, sample
from gemmd._layers.graph.nothing import drop_nothings
from gemmd._layers.graph.writes import is_write


class Reading:
    """A graph and the values of its parameters.

    Parameters
    ----------
    graph_module : torch.fx.GraphModule
        As torch's compiler hands it to a backend.
    inputs : sequence
        What its placeholders stand for.
    buffers : set of int
        The model's, by id.

    Attributes
    ----------
    found : dict of Node to Found
        By root.
    choosers : list of Found
        Products that are not among them, because they choose experts.
    read_of : list of int
        Which of the inputs are buffers whose values were read.
    """

    def __init__(
        self, graph_module: GraphModule, inputs: Any, buffers: Container[int] = ()
    ) -> None:
        self.graph = graph_module.graph
        self._inputs, self._buffers = list(inputs), buffers
        self.read_of = list[int]()
        drop_nothings(self.graph)
        self._constants = dict[Node, Any]()
        self._origins = dict[int, Hashable]()
        self._alive = list[Any]()  # whose ids those are
        for node, given in parameters_of(graph_module, inputs).items():
            self._constants[node] = self._known(given, id(given))
        self._find_constants()
        say_casts(self.graph, self._constants)
        self.order = {node: at for at, node in enumerate(self.graph.nodes)}
        self.found = dict[Node, Found]()  # by root
        for node in self.graph.nodes:
            one = None if node in self._constants else _look_at(self, node)
            if one is not None:
                self.found[node] = one
        self.choosers = choosers(self.graph, self.found)
        for one in self.choosers:
            for node in one.nodes:
                self.found.pop(node, None)
        for pair in routers.mixtures(self):
            self.found.update({one.root: one for one in pair})

    def buffer(self, node: Node) -> Any:
        """The buffer that a node stands for, if the graph does not write to it."""
        if node.op != "placeholder" or any(map(is_write, node.users)):
            return None
        at = [one for one in self.graph.nodes if one.op == "placeholder"].index(node)
        if id(self._inputs[at]) not in self._buffers:
            return None
        if at not in self.read_of:
            self.read_of.append(at)
        return self._known(self._inputs[at], id(self._inputs[at]))

    def _find_constants(self) -> None:
        for node in self.graph.nodes:
            if node.op in ("call_function", "call_method"):
                of = node.all_input_nodes
                if of and all(one in self._constants for one in of) and sample(node) is not None:
                    with torch.no_grad():
                        value = evaluate(node, self._constants)
                    name = getattr(node.target, "__name__", node.target)
                    others = map_arg((node.args, node.kwargs), lambda _: "a tensor")
                    of_all = [self._constants[one] for one in of]
                    self._constants[node] = self.computed(value, f"{name}{others}", *of_all)

    def _known(self, tensor: Any, origin: Hashable) -> Any:
        self._origins[id(tensor)] = origin
        self._alive.append(tensor)
        return tensor

    @property
    def parameters(self) -> list[Any]:
        return [one for one in self._alive if isinstance(one, torch.nn.Parameter)]

    def computed(self, tensor: Any, how: str, *of: Any) -> Any:
        """A tensor that is made of constants, and is one."""
        return self._known(tensor, (how, *(self.origin(one) for one in of)))

    def origin(self, tensor: Any) -> Hashable:
        """Which parameters a constant is made of, and how: the same in each graph that is compiled."""
        return None if tensor is None else self._origins[id(tensor)]

    def constant(self, node: Any) -> Any:
        """The tensor that a node always is; None if it is not one."""
        return self._constants.get(node) if isinstance(node, Node) else None


def parameters_of(graph_module: GraphModule, inputs: Any) -> dict[Node, Any]:
    """The nodes that stand for parameters."""
    found, given = dict[Node, Any](), iter(inputs)
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            value = next(given)
        elif node.op == "get_attr":
            value = operator.attrgetter(node.target)(graph_module)
        else:
            continue
        if isinstance(value, torch.nn.Parameter):
            found[node] = value
    return found


# What a node may be the root of, in this order.
_LOOKS: tuple[Callable[[Reading, Node], Found | None], ...] = (
    products.linear,
    products.addmm,
    products.matmul,
    products.shifted,
    products.scaled,
    norms.layer_norm,
    norms.rms_norm,
    spelt_norms.spelt_norm,
    pointwise.gate,
    products.add,
    pointwise.activation,
    views.regrouped,
)


def _look_at(reading: Reading, node: Node) -> Found | None:
    if node.op not in ("call_function", "call_method") or sample(node) is None:
        return None
    return next((one for look in _LOOKS if (one := look(reading, node)) is not None), None)
