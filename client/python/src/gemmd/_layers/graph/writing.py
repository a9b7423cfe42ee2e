"""Nodes that are added to a graph, with samples of what they give."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.fx import Graph, Node

from gemmd._layers.graph.nodes import evaluate, sample


class Writer:
    """Adds nodes in front of another one."""

    def __init__(self, graph: Graph, before: Node) -> None:
        self._graph = graph
        self._before = before

    def __call__(self, target: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        make = self._graph.call_method if isinstance(target, str) else self._graph.call_function
        with self._graph.inserting_before(self._before):
            node: Node = make(target, args, kwargs)
        samples = {one: one.meta["example_value"] for one in node.all_input_nodes}
        with without_values(samples.values()):
            node.meta = {"example_value": evaluate(node, samples)}
        return node

    def part(self, of: Node | None, first: int, end: int) -> Node | None:
        """Rows of a weight, or numbers of a bias; the whole of it as it is."""
        if of is None or (first == 0 and end == sample(of).shape[0]):
            return of
        return self(operator.getitem, of, slice(first, end))


def without_values(samples: Iterable[Any]) -> AbstractContextManager[Any]:
    """What torch makes besides must have none, either."""
    modes = (getattr(one, "fake_mode", None) for one in samples)
    return next((one for one in modes if one is not None), nullcontext())
