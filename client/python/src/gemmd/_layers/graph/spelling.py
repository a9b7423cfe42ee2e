"""What torch keeps as one function, written as what it computes: attentions of torch.nn and layers of
its encoder. Their products are products of the graph then, between which torch attends.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Graph, Node

from gemmd._layers.graph.nodes import arguments, sample
from gemmd._layers.graph.writing import Writer

_ENCODER_LAYER = getattr(torch, "_transformer_encoder_layer_fwd", None)
_OF_ENCODER_LAYER = (
    "src", "embed_dim", "num_heads", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "use_gelu",
    "norm_first", "eps", "norm_weight_1", "norm_bias_1", "norm_weight_2", "norm_bias_2",
    "ffn_weight_1", "ffn_bias_1", "ffn_weight_2", "ffn_bias_2", "mask", "mask_type",
)  # fmt: skip
_OF_ATTENTION = tuple(signature(F.multi_head_attention_forward).parameters)
# Arguments with which an attention computes something else.
_NEITHER = ("bias_k", "bias_v", "add_zero_attn", "static_k", "static_v")


def spell(graph: Graph, least: int) -> list[tuple[Node, str]]:
    """Those that are plain, and whose weights have as many elements. Returns a weight of each of the
    others, and why it stays.
    """
    left = list[tuple[Node, str]]()
    for node in list(graph.nodes):
        if node.target is F.multi_head_attention_forward:
            given = arguments(node, _OF_ATTENTION)
            why = _why_not(node, given) or _why_small(given, least)
            write = _spell_attention
        elif _ENCODER_LAYER is not None and node.target is _ENCODER_LAYER:
            given = arguments(node, _OF_ENCODER_LAYER)
            why, write = _why_small(given, least), _spell_layer
        else:
            continue
        if why:
            left.append((next(_weights(given)), why))
        else:
            write(graph, node, given)
    return left


def _weights(given: dict[str, Any]) -> Iterator[Node]:
    return (one for name, one in given.items() if "weight" in name and isinstance(one, Node))


def _why_small(given: dict[str, Any], least: int) -> str:
    count = sum(sample(one).numel() for one in _weights(given))
    return f"{count} elements, min_elements is {least}" if count < least else ""


@dataclass(frozen=True)
class _Attention:
    """What one computes with.

    Attributes
    ----------
    weights : tuple
        Of query, key and value: rows [first, end) of each.
    batch_first : bool
        x is [batch, tokens, columns]; else [tokens, batch, columns].
    """

    weights: tuple[tuple[Node, int, int], ...]
    bias: Node | None
    out_weight: Node
    out_bias: Node | None
    heads: int
    batch_first: bool

    def written(
        self, write: Writer, query: Node, key: Node, value: Node, mask: Node | None, causal: bool
    ) -> Node:
        """Its result, laid out as the query."""
        of_heads = [self._of_heads(write, one) for one in self._projected(write, query, key, value)]
        y = write(F.scaled_dot_product_attention, *of_heads, attn_mask=mask, is_causal=causal)
        y = write("transpose", y, 1, 2) if self.batch_first else write("permute", y, 2, 0, 1, 3)
        return write(F.linear, write("flatten", y, -2), self.out_weight, self.out_bias)

    def _of_heads(self, write: Writer, x: Node) -> Node:
        """[batch, heads, tokens, columns]"""
        parts = write("unflatten", x, -1, (self.heads, -1))
        if self.batch_first:
            return write("transpose", parts, 1, 2)
        return write("permute", parts, 1, 2, 0, 3)

    def _projected(self, write: Writer, *xs: Node) -> list[Node]:
        """By as few products as there are different x."""
        made, at = list[Node](), 0
        while at < 3:
            count = 1
            while at + count < 3 and self._joins(xs[at], xs[at + count], at, at + count):
                count += 1
            (weight, first, _), (_, _, end) = self.weights[at], self.weights[at + count - 1]
            n = self._columns()
            bias = write.part(self.bias, at * n, (at + count) * n)
            y = write(F.linear, xs[at], write.part(weight, first, end), bias)
            if count == 1:
                made.append(y)
            else:
                parts = write("chunk", y, count, -1)
                made += [write(operator.getitem, parts, one) for one in range(count)]
            at += count
        return made

    def _joins(self, x: Node, other: Node, at: int, which: int) -> bool:
        return x is other and self.weights[at][0] is self.weights[which][0]

    def _columns(self) -> int:
        return int(sample(self.out_weight).shape[1])


def _of_packed(weight: Node, columns: int) -> tuple[tuple[Node, int, int], ...]:
    return tuple((weight, at * columns, (at + 1) * columns) for at in range(3))


# torch.nn.functional.multi_head_attention_forward.


def _why_not(node: Node, given: dict[str, Any]) -> str:
    name = next((one for one in _NEITHER if given[one] not in (None, False)), "")
    if name:
        return f"its attention has {name}"
    if given["dropout_p"] and given["training"] is not False:
        return "its attention drops out"
    if any(sample(given[name]) is None or sample(given[name]).dim() != 3 for name in _OF_ATTENTION[:3]):
        return "its attention has no batch"
    users = list(node.users)
    if any(one.target is not operator.getitem or (one.args[1] and one.users) for one in users):
        return "somebody takes the shares that its attention gave"
    return ""


def _spell_attention(graph: Graph, node: Node, given: dict[str, Any]) -> None:
    write = Writer(graph, node)
    xs = [given[name] for name in _OF_ATTENTION[:3]]
    before = [_turned(one) for one in xs]  # torch.nn turns what has its batch first
    batch_first = all(one is not None for one in before)
    columns = int(sample(given["out_proj_weight"]).shape[1])
    if given["use_separate_proj_weight"]:
        apart = [given[f"{name}_proj_weight"] for name in "qkv"]
        weights = tuple((one, 0, columns) for one in apart)
    else:
        weights = _of_packed(given["in_proj_weight"], columns)
    attention = _Attention(
        weights, given["in_proj_bias"], given["out_proj_weight"], given["out_proj_bias"],
        given["num_heads"], batch_first,
    )  # fmt: skip
    mask, causal = _mask_of(write, given, sample(xs[0]).dtype)
    query, key, value = before if batch_first else xs
    assert query is not None and key is not None and value is not None
    y = attention.written(write, query, key, value, mask, causal)
    turned = None
    for user in list(node.users):
        for taker in list(user.users):
            if batch_first and _turned(taker) is user:
                taker.replace_all_uses_with(y)
                graph.erase_node(taker)
            else:
                turned = turned or (write("transpose", y, 0, 1) if batch_first else y)
                taker.replace_input_with(user, turned)
        graph.erase_node(user)
    graph.erase_node(node)
    _erase_unused(graph, xs)


def _turned(node: Any) -> Node | None:
    """What a node exchanges the first two extents of."""
    if isinstance(node, Node) and node.op == "call_method" and node.target == "transpose":
        if sorted(one for one in node.args[1:] if isinstance(one, int)) == [0, 1]:
            return node.args[0] if isinstance(node.args[0], Node) else None
    return None


def _mask_of(write: Writer, given: dict[str, Any], dtype: Any) -> tuple[Node | None, bool]:
    """What is added to the scores, and whether they are causal instead."""
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    if given["is_causal"] and padding is None and not given["need_weights"]:
        return None, True
    if mask is not None:
        mask = _added(write, mask, dtype)
        if sample(mask).dim() == 3:
            mask = write("unflatten", mask, 0, (-1, given["num_heads"]))
    if padding is not None:
        padding = _by_keys(write, _added(write, padding, dtype))
        mask = padding if mask is None else write(operator.add, mask, padding)
    return mask, False


def _added(write: Writer, mask: Node, dtype: Any) -> Node:
    if sample(mask).dtype is not torch.bool:
        return mask
    return write("masked_fill", write(torch.zeros_like, mask, dtype=dtype), mask, float("-inf"))


def _by_keys(write: Writer, mask: Node) -> Node:
    """[batch, keys] for all heads and queries."""
    return write("unsqueeze", write("unsqueeze", mask, 1), 1)


# A layer of torch.nn.TransformerEncoder, as it is when nothing needs a gradient.


def _spell_layer(graph: Graph, node: Node, given: dict[str, Any]) -> None:
    write = Writer(graph, node)
    attention = _Attention(
        _of_packed(given["qkv_weight"], given["embed_dim"]), given["qkv_bias"],
        given["proj_weight"], given["proj_bias"], given["num_heads"], batch_first=True,
    )  # fmt: skip
    mask = given["mask"]
    if mask is not None:  # what is not 0 takes no part
        mask = write(torch.logical_not, mask)
        mask = _by_keys(write, mask) if given["mask_type"] == 1 else mask

    def normed(x: Node, which: int) -> Node:
        vectors = given[f"norm_weight_{which}"], given[f"norm_bias_{which}"]
        return write(F.layer_norm, x, (given["embed_dim"],), *vectors, given["eps"])

    def attended(x: Node) -> Node:
        return attention.written(write, x, x, x, mask, False)

    def fed(x: Node) -> Node:
        hidden = write(F.linear, x, given["ffn_weight_1"], given["ffn_bias_1"])
        hidden = write(F.gelu if given["use_gelu"] else F.relu, hidden)
        return write(F.linear, hidden, given["ffn_weight_2"], given["ffn_bias_2"])

    x = given["src"]
    for which, part in ((1, attended), (2, fed)):
        if given["norm_first"]:
            x = write(operator.add, x, part(normed(x, which)))
        else:
            x = normed(write(operator.add, x, part(x)), which)
    node.replace_all_uses_with(x)
    graph.erase_node(node)


def _erase_unused(graph: Graph, nodes: Iterable[Node]) -> None:
    for node in dict.fromkeys(nodes):
        if not node.users and node.op != "placeholder":
            graph.erase_node(node)
