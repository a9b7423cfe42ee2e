"""Attention masks that are made of extents alone: traced, a model makes one where it needs none.

torch's fast attention takes no mask, or a causal one that it is told of. With a mask whose last
stride is 0 it is by plain matmuls in float32, at a tenth of the speed. So a mask that lets all
through goes, and one that is causal is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from gemmd._layers.graph.attention import NAMES, Attention, give
from gemmd._layers.graph.heads import pack_heads, share_heads
from gemmd._layers.graph.layout import ANY_LAYOUT
from gemmd._layers.graph.nodes import arguments, draws, sample
from gemmd._layers.graph.writes import is_write

Kind = Literal["all", "causal", "other"]

_MOST_KNOWN = 1 << 14  # extents of one mask
_MOST_ON_HOST = (
    1 << 16
)  # elements of a mask that a host looks at sooner than it would wait for a GPU
# Of all sequences, that share keys: fewer leave most of a GPU idle. Compiled, attentions are cuDNN's, which
# take more of it where heads are not packed.
_LEAST_HEADS = 32


def say_masks(graph: Graph, as_op: bool) -> None:
    """Takes masks out of a graph. `as_op`: it is compiled further, and must know all it calls."""
    made = dict[Node, _Mask | None]()
    for node in list(graph.nodes):
        given = _attention(node)
        if given is None:
            continue
        mask = given["attn_mask"]
        if mask not in made:
            made[mask] = _Mask.of(mask)
        own = made[mask]
        if own is None:
            _make_dense(graph, node, mask)
            pack_heads(node, least=_LEAST_HEADS if as_op else 1)
        elif not own.numbers:
            extents = _extents(given)
            known = all(isinstance(one, int) for one in extents)
            kind = own.kind_of((), *extents) if known else "other"
            if kind == "other":
                _make_dense(graph, node, mask)
            else:
                _replace_mask(node, None, kind == "causal")
                if not as_op:
                    share_heads(node)
        elif not as_op:
            node.args = (given["query"], given["key"], given["value"], *own.numbers)
            rest = {name: given[name] for name in ("dropout_p", "scale", "enable_gqa")}
            node.kwargs = {name: one for name, one in rest.items() if one is not None}
            times = share_heads(node)
            node.target = own.attend(times)
    for own in made.values():
        for node in reversed(own.nodes if own is not None else ()):
            if not node.users:
                graph.erase_node(node)


def _attention(node: Node) -> dict[str, Any] | None:
    """The arguments of an attention with a mask."""
    if node.target is not F.scaled_dot_product_attention:
        return None
    given = arguments(node, NAMES)
    tensors = all(isinstance(given[name], Node) for name in NAMES[:4])
    return given if tensors and not given["is_causal"] else None


def _extents(given: dict[str, Any]) -> tuple[Any, Any]:
    """The queries and the keys."""
    return sample(given["query"]).shape[-2], sample(given["key"]).shape[-2]


def _replace_mask(node: Node, mask: Node | None, causal: bool) -> None:
    give(node, {**arguments(node, NAMES), "attn_mask": mask, "is_causal": causal})


def _make_dense(graph: Graph, node: Node, mask: Node) -> None:
    of = sample(mask)
    if of is None or of.dim() == 0 or of.stride(-1) == 1:
        return
    with graph.inserting_before(node):
        dense = graph.call_method("contiguous", (mask,))
        dense.meta = {"example_value": of.contiguous()}
    _replace_mask(node, dense, False)


class _Mask:
    """One that is made of numbers.

    Attributes
    ----------
    numbers : list of Node
        Extents that a graph is given, of which a call's are known only then.
    nodes : list of Node
        All that make it, in the graph's order.
    """

    def __init__(self, numbers: list[Node], nodes: list[Node]) -> None:
        self.numbers, self.nodes = numbers, nodes
        graph, now = Graph(), dict[Node, Node]()
        for at, one in enumerate(numbers):
            now[one] = graph.placeholder(f"number{at}")
        for one in nodes:
            now[one] = graph.node_copy(one, lambda node: now[node])
        graph.output(now[nodes[-1]])
        self._make = GraphModule(torch.nn.Module(), graph)
        self._make_on_host = GraphModule(torch.nn.Module(), _on_host(graph))
        self._kinds = dict[tuple[Any, ...], Kind]()

    @classmethod
    def of(cls, mask: Node) -> _Mask | None:
        """None: it is made of a tensor that the graph is given, or computes of one."""
        numbers, nodes, todo = dict[Node, None](), set[Node](), [mask]
        while todo:
            node = todo.pop()
            if node in nodes or node in numbers:
                continue
            value = node.meta.get("example_value")
            if isinstance(value, torch.SymInt | int):
                numbers[node] = None
            elif node.op in ("call_function", "call_method") and not draws(node):
                nodes.add(node)
                todo += node.all_input_nodes
            else:
                return None
        if not nodes or any(map(is_write, (user for node in nodes for user in node.users))):
            return None
        return cls(list(numbers), [node for node in mask.graph.nodes if node in nodes])

    def kind_of(self, numbers: tuple[Any, ...], queries: int, keys: int) -> Kind:
        """What it says, with those numbers."""
        key = (*numbers, queries, keys)
        if key not in self._kinds:
            if len(self._kinds) >= _MOST_KNOWN:
                self._kinds.clear()
            small = queries * keys <= _MOST_ON_HOST
            make = self._make_on_host if small else self._make
            self._kinds[key] = _kind(make(*numbers), queries, keys)
        return self._kinds[key]

    def attend(self, times: int) -> Callable[..., Any]:
        """An attention that is given the numbers in a mask's place. With a mask, keys and values are
        repeated so many times.
        """
        attend = Attention().attend

        def attention(query: Any, key: Any, value: Any, *numbers: Any, **options: Any) -> Any:
            extents = query.shape[-2], key.shape[-2]
            known = (*numbers, *extents) in self._kinds
            capturing = query.is_cuda and torch._C._cuda_isCurrentStreamCapturing()
            kind = self.kind_of(numbers, *extents) if known or not capturing else "other"
            if kind != "other":
                options["is_causal"] = kind == "causal"
                return attend(query, key, value, **options)
            options["attn_mask"] = self._make(*numbers).contiguous()
            if times > 1:
                options.pop("enable_gqa")
                key, value = (one.repeat_interleave(times, 1) for one in (key, value))
            return attend(query, key, value, **options)

        setattr(attention, ANY_LAYOUT, True)
        return attention


def _on_host(graph: Graph) -> Graph:
    """The same, made in the host's memory."""
    copied, twins = Graph(), dict[Node, Node]()
    copied.output(copied.graph_copy(graph, twins))
    for node in copied.nodes:
        node.args, node.kwargs = map_aggregate((node.args, node.kwargs), _host_for)
    return copied


def _host_for(one: Any) -> Any:
    is_device = isinstance(one, torch.device) or (isinstance(one, str) and one.startswith("cuda"))
    return torch.device("cpu") if is_device else one


def _kind(mask: Any, queries: int, keys: int) -> Kind:
    if mask.dtype is not torch.bool:
        return "other" if mask.any() else "all"
    if mask.all():
        return "all"
    if queries != keys or tuple(mask.shape[-2:]) != (queries, keys):
        return "other"
    causal = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril()
    return "causal" if bool((mask == causal).all()) else "other"
