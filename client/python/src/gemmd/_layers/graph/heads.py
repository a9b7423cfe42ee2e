"""Keys and values that a model repeats for the heads that share them. Told that these share them,
torch's attention needs no copies, which are of the whole cache with each token.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from gemmd._layers.graph.attention import NAMES, give
from gemmd._layers.graph.nodes import arguments, hint, is_same, sample
from gemmd._layers.graph.writes import is_write

_CAN_SHARE = "enable_gqa" in (F.scaled_dot_product_attention.__doc__ or "")  # torch 2.5 and later
_MOST_COLUMNS = 256  # of a head, in the kernels that know it
_REPEATS = (torch.repeat_interleave, "repeat_interleave")
_ALL = slice(None)


def share_heads(attention: Node) -> int:
    """Has one without a mask take keys and values as they were before they were repeated for its heads.
    Returns how often they were.
    """
    query, key, value, *more = attention.args
    found = _unrepeated(attention, key, value) if _CAN_SHARE else None
    if found is None:
        return 1
    times = int(sample(key).shape[1]) // int(sample(found[0]).shape[1])
    attention.args = (query, *found, *more)
    attention.kwargs = {**attention.kwargs, "enable_gqa": True}
    _drop(key, value)
    return times


def pack_heads(attention: Node, least: int) -> None:
    """Has one with a mask for all heads, and one query, take what heads share as rows of one head: with
    a mask torch's fast kernels do not know of sharing. `least`: of all sequences' heads then.
    """
    given = arguments(attention, NAMES)
    query, key, value, mask = (given[name] for name in NAMES[:4])
    one, of_all = sample(query), sample(mask)
    if one is None or one.dim() != 4 or one.shape[-2] != 1:
        return
    if of_all is None or of_all.dim() != 4 or tuple(of_all.shape[1:3]) != (1, 1):
        return
    found = _unrepeated(attention, key, value)
    if found is None:
        return
    heads, columns = int(one.shape[1]), int(one.shape[-1])
    shared = int(sample(found[0]).shape[1])
    if (hint(one.shape[0]) or 1) * shared < least:
        return
    packed = (-1, shared, heads // shared, columns)
    graph = attention.graph
    with graph.inserting_before(attention):
        rows = graph.call_method("reshape", (query, *packed))
        rows.meta = {"example_value": one.reshape(packed)}
    give(attention, {**given, "query": rows, "key": found[0], "value": found[1]})
    with graph.inserting_after(attention):
        result = graph.call_method("reshape", (attention, -1, heads, 1, columns))
    attention.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)
    result.meta = dict(attention.meta)
    attention.meta = {
        **attention.meta, "example_value": sample(attention).reshape(packed)
    }  # fmt: skip
    _drop(key, value)


def _unrepeated(attention: Node, key: Any, value: Any) -> tuple[Node, Node] | None:
    """Key and value before they were repeated; None if they were not."""
    first, second = _before(key), _before(value)
    if first is None or second is None:
        return None
    keys, values = sample(first), sample(second)
    if (keys.shape[1], keys.shape[-1]) != (values.shape[1], values.shape[-1]):
        return None
    if keys.shape[-1] > _MOST_COLUMNS or keys.dtype not in (torch.float16, torch.bfloat16):
        return None
    if any(_is_written_before(attention, one) for one in (key, value)):
        return None
    return first, second


def _drop(*repeats: Any) -> None:
    """Those that nobody needs any more, and what they were made of."""
    for one in dict.fromkeys(repeats):
        node = one
        while not node.users and node.op in ("call_function", "call_method"):
            of = node.all_input_nodes[0]
            node.graph.erase_node(node)
            node = of


def _before(node: Any) -> Node | None:
    """[batch, heads, rows, columns] of what repeats each head, one behind the other."""
    if not isinstance(node, Node):
        return None
    if node.target in _REPEATS:
        given = arguments(node, ("input", "repeats", "dim"))
        repeats = isinstance(given["repeats"], int) and given["dim"] == 1
        x = given["input"] if repeats else None
    else:
        x = _before_expanded(node)
    return x if isinstance(x, Node) and sample(x) is not None and sample(x).dim() == 4 else None


def _before_expanded(node: Node) -> Any:
    """x of x[:, :, None].expand(..).reshape(..)."""
    wide = node.all_input_nodes[0] if node.target in (torch.reshape, "reshape") else None
    if wide is None or wide.target != "expand":
        return None
    x = _unlifted(wide.all_input_nodes[0])
    return x if _fits(wide, x) and _fits(wide, node) else None


def _unlifted(node: Node) -> Any:
    """x of x[:, :, None], however it is written."""
    if node.target is operator.getitem:
        index = node.args[1]
        lifts = isinstance(index, tuple) and index[:3] == (_ALL, _ALL, None)
        return node.args[0] if lifts and all(one == _ALL for one in index[3:]) else None
    if node.target in (torch.unsqueeze, "unsqueeze"):
        given = arguments(node, ("input", "dim"))
        return given["input"] if given["dim"] == 2 else None
    return None


def _fits(wide: Node, node: Any) -> bool:
    """Whether [batch, heads, times, rows, columns] has those of a node with heads, or all of them."""
    own, other = sample(wide), sample(node) if isinstance(node, Node) else None
    if own is None or other is None or own.dim() != 5 or other.dim() != 4:
        return False
    heads, times = own.shape[1:3]
    if not isinstance(heads, int) or not isinstance(times, int):
        return False
    rest = ((0, 0), (3, 2), (4, 3))
    same = all(is_same(own.shape[one], other.shape[two]) for one, two in rest)
    return same and other.shape[1] in (heads, heads * times)


def _is_written_before(attention: Node, node: Node) -> bool:
    """Whether something is, between a node and the attention that it is for."""
    while node is not attention:
        if is_write(node):
            return True
        node = node.next
    return False
