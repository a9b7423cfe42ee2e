"""Calls without padding: whether a padding mask lets all tokens through is known only when a model is
called. torch's attention without a mask is some times as fast, for one query of many keys by far the most.
So such a call has a graph of its own, in which that mask is made of ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node

from gemmd._layers.graph.attention import NAMES
from gemmd._layers.graph.by_parameters import Run, copied
from gemmd._layers.graph.nodes import arguments, draws, sample
from gemmd._layers.graph.writes import Memory, is_write

LEAST = 512  # tokens: asking waits for the GPU, which takes as long as one layer's mask costs then
_LONGEST = 64  # calls without asking, where there is padding again and again


def by_padding(graph_module: GraphModule, inputs: Sequence[Any], make: Callable[..., Run]) -> Run:
    """What runs in a graph's place. `make`: of a GraphModule and inputs, what runs for it."""
    at = _padding(graph_module)
    return make(graph_module, inputs) if at is None else ByPadding(graph_module, inputs, make, at)


class ByPadding:
    """A graph, and the same without padding: each is made when it is first called.

    Parameters
    ----------
    graph_module : torch.fx.GraphModule
    inputs : sequence
        Those of the first call.
    make : function of a GraphModule and inputs
    at : int
        Which input is the padding mask.
    """

    def __init__(
        self, graph_module: GraphModule, inputs: Sequence[Any], make: Callable[..., Run], at: int
    ) -> None:
        self._graph_module, self._make, self._at = graph_module, make, at
        self._made = dict[bool, Run]()
        self._rest = 0  # calls without asking, behind the last one with padding
        self._unasked = 0  # of them, those that are still to come
        self._run_for(inputs)

    def __call__(self, *inputs: Any) -> Any:
        return self._run_for(inputs)(*inputs)

    def _run_for(self, inputs: Sequence[Any]) -> Run:
        whole = self._is_whole(inputs[self._at])
        if whole not in self._made:
            graph_module = _unpadded(self._graph_module, self._at) if whole else self._graph_module
            self._made[whole] = self._make(graph_module, inputs)
        return self._made[whole]

    def _is_whole(self, mask: Any) -> bool:
        """Whether all tokens are known to be let through."""
        if isinstance(mask, FakeTensor) or mask.shape[-1] < LEAST:
            return False
        if mask.is_cuda and torch._C._cuda_isCurrentStreamCapturing():
            return False
        if self._unasked > 0:
            self._unasked -= 1
            return False
        whole = bool((mask if mask.dtype is torch.bool else mask == 1).all())
        self._rest = self._unasked = 0 if whole else min(2 * self._rest + 1, _LONGEST)
        return whole


def _padding(graph_module: GraphModule) -> int | None:
    """Which input is the padding mask that attentions have masks of, and of nothing else but extents."""
    found = set[Node]()
    for node in graph_module.graph.nodes:
        if node.target is F.scaled_dot_product_attention:
            mask = arguments(node, NAMES)["attn_mask"]
            made_of = _made_of(mask) if isinstance(mask, Node) else set[Node]()
            if len(made_of) == 1:
                found |= made_of
    memory = Memory(graph_module.graph)
    places = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    candidates = [
        at
        for at, node in enumerate(places)
        if node in found and _may_pad(node) and memory.of(node) not in memory.changed
    ]
    return candidates[0] if len(candidates) == 1 else None


def _may_pad(node: Node) -> bool:
    """[batch, tokens] of bool or of integers."""
    one = sample(node)
    whole = one is not None and one.dim() == 2
    return whole and not one.is_floating_point() and not one.is_complex()


def _made_of(mask: Node) -> set[Node]:
    """The graph's inputs that it is made of but for extents; what it is computed of by something
    other than a function of these counts, too.
    """
    found, seen, todo = set[Node](), set[Node](), [mask]
    while todo:
        node = todo.pop()
        if node in seen or isinstance(node.meta.get("example_value"), torch.SymInt | int):
            continue
        seen.add(node)
        plain = node.op in ("call_function", "call_method") and not draws(node)
        if plain and not any(map(is_write, node.users)):
            todo += node.all_input_nodes
        else:
            found.add(node)
    return found


def _unpadded(graph_module: GraphModule, at: int) -> GraphModule:
    """With ones in the place of that input."""
    twin = copied(graph_module)
    graph = twin.graph
    mask = [node for node in graph.nodes if node.op == "placeholder"][at]
    of = sample(mask)
    extents, made = list[Any](), list[Node]()
    first = next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    with graph.inserting_before(first):
        for axis, extent in enumerate(of.shape):
            if not isinstance(extent, int):
                made.append(graph.call_method("size", (mask, axis)))
                made[-1].meta = {"example_value": extent}
                extent = made[-1]
            extents.append(extent)
        options = {"dtype": of.dtype, "device": of.device}
        ones = graph.call_function(torch.ones, (tuple(extents),), options)
    ones.meta = {"example_value": torch.ones_like(of)}
    mask.replace_all_uses_with(ones, delete_user_cb=lambda user: user not in made)
    graph.lint()
    twin.recompile()
    return twin
