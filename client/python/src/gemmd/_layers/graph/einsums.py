"""Products that a model writes as an einsum of x and a weight, as linears of the graph."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Graph, Node

from gemmd._layers.graph.nodes import sample
from gemmd._layers.graph.writing import Writer

_MORE = "..."


def spell_einsums(graph: Graph, parameters: Container[Node], least: int) -> None:
    """Those by which a parameter of as many elements multiplies x along the last of its extents."""
    for node in list(graph.nodes):
        if node.target is torch.einsum:
            _spell(graph, node, parameters, least)


def _spell(graph: Graph, node: Node, parameters: Container[Node], least: int) -> None:
    equation, operands = _given(node)
    if len(operands) != 2 or "->" not in equation:
        return
    inputs, _, result = equation.replace(" ", "").partition("->")
    terms = dict(zip(operands, inputs.split(","), strict=False))
    weights = [one for one in operands if one in parameters]
    if len(weights) != 1 or len(terms) != 2:
        return
    (weight,) = weights
    if sample(weight).numel() < least:  # the weight would be turned in every call
        return
    (x,) = (one for one in operands if one is not weight)
    summed, made = _parts(terms[x], terms[weight], result)
    if not summed:
        return
    shape = {name: int(size) for name, size in zip(terms[weight], sample(weight).shape, strict=True)}
    write = Writer(graph, node)
    order = [terms[weight].index(one) for one in made + summed]
    n, k = (math.prod(shape[one] for one in names) for names in (made, summed))
    matrix = write("reshape", write("permute", weight, *order), n, k)
    y = write(F.linear, write("flatten", x, -len(summed)) if len(summed) > 1 else x, matrix)
    if len(made) > 1:
        y = write("unflatten", y, -1, tuple(shape[one] for one in made))
    node.replace_all_uses_with(y)
    graph.erase_node(node)


def _given(node: Node) -> tuple[str, list[Any]]:
    equation, *operands = node.args
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = list(operands[0])
    return str(equation), operands


def _parts(x: str, weight: str, result: str) -> tuple[str, str]:
    """Of "btd,dhk->bthk" what is summed over, "d", and what is made, "hk"; nothing is summed where it
    is no such product.
    """
    if _MORE in weight or len(set(weight)) < len(weight):
        return "", ""
    summed = "".join(one for one in x.replace(_MORE, "") if one in weight)
    rows = x[: len(x) - len(summed)]
    made = result[len(rows) :]
    is_product = x == rows + summed and result == rows + made and set(made + summed) == set(weight)
    letters = (rows + made + summed).replace(_MORE, "")
    return (summed, made) if is_product and len(set(letters)) == len(letters) else ("", "")
