"""A router and its experts, found in a graph: what lies between the router's logits and a layer of
experts is tried on other logits, and told by its results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from gemmd._layers import torch_ops
from gemmd._layers.choice import MOST_TOP, Choice
from gemmd._layers.graph.found import Found
from gemmd._layers.graph.nodes import evaluate, hint, is_closed, number, past_casts, sample
from gemmd._layers.graph.writes import is_write

if TYPE_CHECKING:
    from gemmd._layers.graph.reading import Reading

_ROUTED = (torch.ops.gemmd.routed, torch.ops.gemmd.routed.default)
_OF_ANOTHERS_TYPE = ("type_as", "to")  # methods: of a second tensor they take the type alone
_ROWS = 16  # of logits that are tried at once, where the graph does not say how many there are
_TRIED_ROWS = 64  # in all, at least: of one row many ways choose the same
_SCALES = (1, 2)  # of logits, in turn: limits on them show with large ones
_MOST_GROUPS = 64
_CODES = 512  # of bfloat16 from 1/4 to 4
_ROUNDED = 4  # of the logits' type's steps, that weights may differ by


def mixtures(reading: Reading) -> Iterator[tuple[Found, Found]]:
    """Routers, and the experts that each chooses."""
    for node in reading.graph.nodes:
        if node.target in _ROUTED:
            yield from _mixture(reading, node)


def _mixture(reading: Reading, node: Node) -> Iterator[tuple[Found, Found]]:
    x, experts, weights, key, *_ = node.args
    layer = torch_ops.layer_of(key)
    between = {node}
    product = _product_behind(reading, (experts, weights), between)
    router = None if product is None else _router(reading, product, x)
    if product is None or router is None or not is_closed(node, between, product.root):
        return
    if product.weight.shape[0] != layer.weights[0].experts or sample(node).dtype != sample(x).dtype:
        return
    nodes = frozenset(between)
    choice = _choice(reading, nodes, product.root, (experts, weights))
    if choice is not None:
        how, bias = choice
        inputs = x, product.root
        yield router, Found("experts", node, inputs, nodes, bias=bias, layer=layer, choice=how)


def _product_behind(reading: Reading, ends: tuple[Any, ...], between: set[Node]) -> Found | None:
    """The one product that all of these are made of, beside parameters and extents; what lies between
    them.
    """
    choosing = {one.root: one for one in reading.choosers}
    found, todo = set[Node](), [one for one in ends if isinstance(one, Node)]
    while todo:
        node = todo.pop()
        if node in choosing:
            found.add(node)
        elif node not in between and _given(reading, node) is None:
            if node.op not in ("call_function", "call_method"):
                return None
            between.add(node)
            todo += [*_made_of(node), *filter(is_write, node.users)]
    return choosing[found.pop()] if len(found) == 1 else None


def _made_of(node: Node) -> list[Node]:
    """Those whose values it is made of."""
    sources: list[Node] = node.all_input_nodes
    return sources[:1] if node.target in _OF_ANOTHERS_TYPE else sources


def _given(reading: Reading, node: Node) -> Any:
    """A parameter, a buffer or an extent; None of what is none of these."""
    for value in (reading.constant(node), number(node)):
        if value is not None:
            return value
    return reading.buffer(node)


def _router(reading: Reading, product: Found, x: Node) -> Found | None:
    """The product as a block multiplies it: of x's own type, where that holds the weight exactly, or
    of float32; None of anything else.
    """
    nodes = set(product.nodes)
    given, weight = product.inputs[0], product.weight
    source = past_casts(given, nodes) if len(given.users) == 1 else given
    if sample(source).dtype is not sample(x).dtype or weight.is_meta:
        return None
    narrow = weight.to(sample(x).dtype)
    if torch.equal(narrow.to(weight.dtype), weight):
        weight = reading.computed(narrow, f"to {narrow.dtype}", weight)
    elif weight.dtype is not torch.float32:
        return None
    within = frozenset(nodes)
    return replace(product, kind="router", inputs=(source,), nodes=within, weight=weight)


def _choice(
    reading: Reading, nodes: frozenset[Node], root: Node, ends: tuple[Node, Node]
) -> tuple[Choice, Any] | None:
    """What gives the experts and weights that these nodes give; and a bias."""
    own, logits = _tried(reading, nodes, root, ends)
    if own is None or own[0].dim() != 2 or own[0].shape != own[1].shape:
        return None
    most = _ROUNDED * max(torch.finfo(one.dtype).eps for one in (logits, own[1]))
    wanted = _sorted(own[0], own[1])
    biases = [
        value
        for node in _around(nodes)
        if isinstance(value := _given(reading, node), torch.Tensor)
        and value.shape == logits.shape[-1:]
    ]
    for way in _ways(own[0].shape[1], logits.shape[1], _numbers(nodes)):
        for bias in biases or [None]:  # a small one seldom shows: who has one is told with it
            found = _scaled_like(way, logits, bias, wanted, most)
            if found is not None:
                return found, bias
    return None


def _scaled_like(
    way: Choice, logits: Any, bias: Any, wanted: tuple[Any, Any], most: float
) -> Choice | None:
    """With the scale by which its weights are those; None if there is none."""
    experts, weights = _sorted(*way.of(logits, None if bias is None else bias.float()))
    if not torch.equal(experts, wanted[0]):
        return None
    scale = float((wanted[1].sum() / weights.sum()).item())
    if abs(scale - 1) < most:
        scale = 1.0
    if not math.isfinite(scale) or scale <= 0:
        return None
    close = torch.allclose(weights * scale, wanted[1], rtol=most, atol=most * scale / way.top_k)
    return replace(way, scale=scale) if close else None


def _ways(top_k: int, experts: int, numbers: set[int]) -> Iterator[Choice]:
    """How it could choose; grouped as the numbers that it has say."""
    if not 0 < top_k <= min(experts, MOST_TOP):
        return
    plain = [
        Choice(top_k, scores, renormalize)
        for scores in ("softmax", "sigmoid")
        for renormalize in (True, False)
    ]
    yield from plain
    for groups in sorted(one for one in numbers if 1 < one <= min(_MOST_GROUPS, experts)):
        each = experts // groups
        for top in sorted(one for one in numbers if 0 < one < groups):
            if experts % groups or top * each < top_k:
                continue
            for one in plain:
                grouped = replace(one, groups=groups, top_groups=top)
                yield grouped
                if each > 1:
                    yield replace(grouped, group_score="top2_sum")


def _numbers(nodes: frozenset[Node]) -> set[int]:
    """Whole numbers among what these are called with."""
    found = set[int]()

    def look(one: Any) -> None:
        if isinstance(one, (tuple, list)):
            for part in one:
                look(part)
        elif type(one) is int:
            found.add(one)

    for node in nodes:
        look([*node.args, *node.kwargs.values()])
    return found


def _around(nodes: frozenset[Node]) -> dict[Node, None]:
    """What they are made of, beside one another, in the graph's order."""
    given = (one for node in nodes for one in _made_of(node))
    return dict.fromkeys(one for one in given if one not in nodes)


def _tried(
    reading: Reading, nodes: frozenset[Node], root: Node, ends: tuple[Node, Node]
) -> tuple[tuple[Any, Any] | None, Any]:
    """Experts and weights by these nodes, and the logits that they are of, as many rows as tell."""
    given, found, rows = list[Any](), list[tuple[Any, Any]](), 0
    while rows < _TRIED_ROWS or len(given) < len(_SCALES):
        logits = _distinct(sample(root), len(given)) * _SCALES[len(given) % len(_SCALES)]
        one = _evaluated(reading, nodes, root, logits, ends)
        if one is None:
            return None, None
        given.append(logits)
        found.append(one)
        rows += max(1, len(logits))
    experts, weights = (torch.cat(parts) for parts in zip(*found, strict=True))
    return (experts, weights), torch.cat(given)


def _distinct(like: Any, seed: int) -> Any:
    """Logits [tokens, experts] of a tensor's type and place, no two of a token alike."""
    rows, experts = _ROWS if (count := hint(like.shape[0])) is None else count, int(like.shape[-1])
    generator = torch.Generator("cpu").manual_seed(seed)
    order = torch.rand(rows, experts, generator=generator, device="cpu").argsort(-1)
    # Of bfloat16's bits, so that all types hold them: from 1/4 to 4, 128 numbers a doubling.
    codes = order * max(1, _CODES // experts) + 0x3E80
    values = codes.to(torch.int16).view(torch.bfloat16).float()
    negative = torch.rand(rows, experts, generator=generator, device="cpu") < 0.5
    values = torch.where(negative, -values, values)
    return values.to(like.device, like.dtype)


def _evaluated(
    reading: Reading, nodes: frozenset[Node], root: Node, logits: Any, ends: tuple[Node, Node]
) -> tuple[Any, Any] | None:
    values: dict[Node, Any] = {root: logits.clone()}  # which some of the nodes may write to
    wanted = set(ends)
    for node in sorted(nodes, key=lambda node: reading.order[node]):
        if node.target in _ROUTED:
            break
        for one in node.all_input_nodes:
            if one not in values and (given := _given(reading, one)) is not None:
                values[one] = given
            elif one not in values and one not in _made_of(node):
                values[one] = sample(one).new_empty(0, device=logits.device)
        try:
            values[node] = evaluate(node, values)
        except Exception:  # it counts on another number of rows, say
            return None
    return (values[ends[0]], values[ends[1]]) if wanted <= values.keys() else None


def _sorted(experts: Any, weights: Any) -> tuple[Any, Any]:
    """By expert."""
    order = experts.argsort(-1)
    return experts.gather(-1, order).long(), weights.float().gather(-1, order)
