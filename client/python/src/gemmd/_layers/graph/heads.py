"""Keys and values that a model repeats for the heads that share them. Told that these share them,
torch's attention needs no copies, which are of the whole cache with each token.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from gemmd._layers.graph.nodes import arguments, is_same, sample
from gemmd._layers.graph.writes import is_write

_MOST_COLUMNS = 256  # of a head, in the kernels that know it
_ALL = slice(None)


def unrepeated(attention: Node, query: Any, key: Any, value: Any) -> tuple[Node, Node] | None:
    """Key and value before they were repeated; None if they were not."""
    of = [_before(key), _before(value)]
    if None in of or sample(query) is None or sample(query).dim() != 4:
        return None
    keys, values = (sample(one) for one in of)
    heads = {int(keys.shape[1]), int(values.shape[1])}
    columns = {int(keys.shape[-1]), int(values.shape[-1])}
    if len(heads) > 1 or len(columns) > 1 or max(columns) > _MOST_COLUMNS:
        return None
    if any(one.dtype not in (torch.float16, torch.bfloat16) for one in (keys, values)):
        return None
    if any(_is_written_before(attention, one) for one in (key, value)):
        return None
    return of[0], of[1]


def drop(node: Node) -> None:
    """A repeat that nobody needs any more, and what it was made of."""
    while not node.users and node.op in ("call_function", "call_method"):
        of = node.all_input_nodes[0]
        node.graph.erase_node(node)
        node = of


def _before(node: Any) -> Node | None:
    """x of repeat_interleave(x, n, 1), which models also write x[:, :, None].expand(..).reshape(..)."""
    x = None
    if not isinstance(node, Node):
        return None
    if node.target in (torch.repeat_interleave, "repeat_interleave"):
        given = arguments(node, ("input", "repeats", "dim"))
        if isinstance(given["repeats"], int) and given["dim"] == 1:
            x = given["input"]
    elif node.target in (torch.reshape, "reshape"):
        wide = node.args[0]
        if isinstance(wide, Node) and wide.target == "expand" and _fits(wide, node):
            x = _unlifted(wide.args[0])
    if not isinstance(x, Node) or sample(x) is None or sample(x).dim() != 4:
        return None
    if node.target not in (torch.repeat_interleave, "repeat_interleave") and not _fits(wide, x):
        return None
    return x


def _unlifted(node: Any) -> Any:
    """x of x[:, :, None], however it is written."""
    if not isinstance(node, Node):
        return None
    if node.target is operator.getitem:
        index = node.args[1]
        if isinstance(index, tuple) and index[:3] == (_ALL, _ALL, None):
            return node.args[0] if all(one == _ALL for one in index[3:]) else None
    elif node.target in (torch.unsqueeze, "unsqueeze"):
        return arguments(node, ("input", "dim"))["input"] if node.args[1:] == (2,) else None
    return None


def _fits(wide: Node, node: Node) -> bool:
    """Whether [batch, heads, times, rows, columns] has those of a node with heads, or all of them."""
    own, other = sample(wide), sample(node)
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
