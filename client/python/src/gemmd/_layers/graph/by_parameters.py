"""One graph of torch's compiler for several modules: it comes once for all modules of a class whose
forward is compiled by itself, and parameters are among its inputs. What is made of it for one set
of parameters is wrong for another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

Run = Callable[..., Any]

_SOURCE = "_dynamo_source"  # of a placeholder: where the caller has it


class ByParameters:
    """What runs in a graph's place: for each set of parameters what `make` makes for it.

    Parameters
    ----------
    graph_module : torch.fx.GraphModule
        Never changed: `make` is given copies.
    inputs : sequence
        Those of the first call.
    make : function of a GraphModule and inputs
        What runs, and which other inputs it is for, too: buffers, say, of which it has read values.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        inputs: Sequence[Any],
        make: Callable[[GraphModule, Sequence[Any]], tuple[Run, Sequence[int]]],
    ) -> None:
        self._graph_module = graph_module
        self._make = make
        self._places = [at for at, one in enumerate(inputs) if isinstance(one, torch.nn.Parameter)]
        self._made = list[tuple[list[int], list[Any], Run]]()
        self._make_for(inputs)

    def __call__(self, *inputs: Any) -> Any:
        for places, own, run in self._made:
            if all(map(is_, own, map(inputs.__getitem__, places))):
                return run(*inputs)
        return self._make_for(inputs)(*inputs)

    def _make_for(self, inputs: Sequence[Any]) -> Run:
        run, more = self._make(copied(self._graph_module), inputs)
        places = [*self._places, *more]
        self._made.append((places, [inputs[at] for at in places], run))
        return run


def copied(graph_module: GraphModule) -> GraphModule:
    """With all that torch's compiler says of it."""
    graph, twins = Graph(), dict[Node, Node]()
    graph.output(graph.graph_copy(graph_module.graph, twins))
    copied = GraphModule(graph_module, graph)
    # What torch's compiler tells a backend beside: by it inductor knows inputs that lie where they are,
    # such as weights and a cache, without which a call that writes to one is no CUDA graph.
    copied.meta.update(graph_module.meta)
    for name, value in vars(graph_module).items():
        vars(copied).setdefault(name, value)
    for node, twin in twins.items():
        if node.op == "placeholder" and hasattr(node, _SOURCE):
            setattr(twin, _SOURCE, getattr(node, _SOURCE))
    return copied
