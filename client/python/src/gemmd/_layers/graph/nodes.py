"""Questions to one node of a graph, or to a few."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from types import BuiltinFunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Node
from torch.fx.node import map_arg

ADDS_IN_PLACE = (operator.iadd, "add_")
ADDS = (operator.add, torch.add, "add", *ADDS_IN_PLACE)
PRODUCTS = (operator.mul, torch.mul, "mul")
MATMULS = (operator.matmul, torch.matmul, torch.mm, "matmul", "mm")
_MODULES = ("torch", "gemmd", "_operator", "math")
_NAMESPACES = ("aten", "prims", "gemmd")
_CASTS = ("to", "float", "type", "type_as")


def traced(node: Node) -> Any:
    """What it was while the graph was traced: tensors without values, or a number."""
    return node.meta.get("example_value", node.meta.get("val"))


def sample(node: Node) -> Any:
    """A tensor of its shape and type, without values; None if it has no tensor."""
    found = traced(node)
    return found if isinstance(found, torch.Tensor) else None


def number(node: Node) -> int | None:
    """What a node is that stands for an extent, or is made of some; None if it is something else."""
    return hint(traced(node))


def hint(extent: Any) -> int | None:
    """An extent, which may be a symbol: what it is now. The graph then still serves others."""
    if isinstance(extent, torch.SymInt):
        found = extent.node.hint
        return None if found is None else int(found)
    return extent if type(extent) is int else None


def evaluate(node: Node, values: dict[Node, Any]) -> Any:
    """The result of a node."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda one: values[one])
    if node.op == "call_method":
        first, *rest = args
        return getattr(first, node.target)(*rest, **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def arguments(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    given = dict.fromkeys(names)
    given.update(zip(names, node.args, strict=False))
    given.update({name: one for name, one in node.kwargs.items() if name in given})
    return given


def is_known(node: Node) -> bool:
    """Whether it is torch's: what others have registered may do something else each time."""
    if node.op == "call_method" or isinstance(node.target, BuiltinFunctionType):
        return True
    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(node.target).startswith(_NAMESPACES)
    return (getattr(node.target, "__module__", None) or "").partition(".")[0] in _MODULES


def draws(node: Node) -> bool:
    """Whether it gives another result each time."""
    name = str(getattr(node.target, "__name__", node.target))
    return name.startswith(("rand", "normal", "bernoulli", "multinomial", "dropout"))


def is_product_call(node: Node) -> bool:
    """Whether it multiplies matrices."""
    return node.target is F.linear or node.target is torch.addmm or node.target in MATMULS


def multiplied(product: Node) -> Node | None:
    """Its x."""
    names = ("input", "mat1") if product.target is torch.addmm else ("input",)
    x = arguments(product, names)[names[-1]]
    return x if isinstance(x, Node) else None


def alike(node: Node, other: Any, columns: bool = True) -> bool:
    """Whether two tensors have as many rows, and as many columns, of one type."""
    if not isinstance(other, Node):
        return False
    one, two = sample(node), sample(other)
    if one is None or two is None or one.dtype is not two.dtype or one.dim() != two.dim():
        return False
    extents = (
        zip(one.shape, two.shape, strict=True)
        if columns
        else zip(one.shape[:-1], two.shape[:-1], strict=True)
    )
    return one.dim() > 1 and all(is_same(a, b) for a, b in extents)


def is_same(one: Any, other: Any) -> bool:
    """Of two extents, which may be symbols: those are the same only if they are written alike."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return str(one) == str(other)


def is_cast(node: Node) -> bool:
    return node.op == "call_method" and node.target in _CASTS


def past_casts(node: Node, nodes: set[Node]) -> Node:
    while is_cast(node) and sample(node) is not None:
        nodes.add(node)
        node = node.all_input_nodes[0]
    return node


def either_way(node: Node) -> Iterator[tuple[Any, Any]]:
    """The two that are added or multiplied, in both orders; none if more is asked for (`alpha=`)."""
    if len(node.args) == 2 and not node.kwargs:
        yield node.args[0], node.args[1]
        yield node.args[1], node.args[0]


def is_closed(root: Node, nodes: set[Node], source: Node | None = None) -> bool:
    """Whether nobody else needs what lies between: all that uses one of the nodes, or the product
    that they are made of, is one of them, but for the last one's users.
    """
    between = nodes - {root} | ({source} if source is not None else set())
    return all(user in nodes for one in between for user in one.users)
