"""How tensors lie in memory. A graph was traced with results of torch's, whose strides it may rely on: by
`as_strided`, say, or a `view` of what is one piece. What stands in their place may lie otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx import Node

from gemmd._layers.graph.calls import layer_of
from gemmd._layers.graph.nodes import evaluate, hint, is_known, is_same, sample
from gemmd._layers.graph.writes import name_of
from gemmd._layers.graph.writing import Writer, without_values

# Which ask for it: what they have been told while the graph was traced is in the graph.
_ASK = {"as_strided", "stride", "is_contiguous", "storage_offset", "data_ptr", "empty_strided"}
ANY_LAYOUT = "_gemmd_any_layout"  # of a function that takes tensors however they lie


def lie_as_traced(node: Node, really: Any) -> None:
    """Has those who take a node's result see it as it was traced, where they must, and the caller.
    `really`: a sample that lies as the result does.
    """
    traced = sample(node)
    if may_lie(node, really, given_out=False):
        return
    write = Writer(node.graph, node.next)
    users = set(node.users)
    order = sorted(range(traced.dim()), key=lambda at: -(hint(traced.stride(at)) or 0))
    back = [order.index(at) for at in range(traced.dim())]
    lies = write("permute", write("contiguous", write("permute", node, order)), back)
    node.replace_all_uses_with(lies, delete_user_cb=lambda user: user in users)


def may_lie(node: Node, really: Any, given_out: bool) -> bool:
    """Whether all that takes a node's result computes the same if it lies as another sample does.
    `given_out`: the caller may be given it so, or what is made of it.
    """
    if _lie_alike(really, sample(node)):
        return True
    otherwise = {node: really}
    user = node.next
    while user.op != "root":
        given = user.all_input_nodes
        if not otherwise.keys().isdisjoint(given) and not (user.op == "output" and given_out):
            if user.op == "output" or name_of(user) in _ASK:
                return False
            takes_any = layer_of(user) is not None or hasattr(user.target, ANY_LAYOUT)
            if not takes_any and not _takes(user, otherwise):
                return False
        user = user.next
    return True


def _takes(user: Node, otherwise: dict[Node, Any]) -> bool:
    """Whether it does; if its own result lies otherwise then, that is one of them, too."""
    was = user.meta.get("example_value")
    if was is None:  # put into the graph, where rows are regrouped for a block
        return bool(user.op == "call_method" and user.target == "reshape")
    if not is_known(user):
        return False
    values = {
        one: otherwise.get(one, one.meta.get("example_value")) for one in user.all_input_nodes
    }
    try:
        with torch.no_grad(), _symbolic(values.values()), without_values(values.values()):
            made = evaluate(user, values)
    except Exception:  # a view that cannot be: whatever torch raises for it
        return False
    if not _lie_alike(made, was):
        otherwise[user] = made
    return True


@contextmanager
def _symbolic(values: Iterable[Any]) -> Iterator[None]:
    """For samples whose extents are symbols, and which must not bind torch's compiler to one call's."""
    modes = (getattr(one, "fake_mode", None) for one in values)
    shapes = next((mode.shape_env for mode in modes if mode is not None), None)
    with enable_python_dispatcher(), nullcontext() if shapes is None else shapes.suppress_guards():
        yield


def _lie_alike(one: Any, other: Any) -> bool:
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return all(map(_lie_alike, one, other))
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return True
    extents = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(is_same(extent, 1) or is_same(*strides) for extent, *strides in extents)
