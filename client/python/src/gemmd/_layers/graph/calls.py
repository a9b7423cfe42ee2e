"""Calls of layers as nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node

from gemmd._layers.layer import Layer

_LAYER = "gemmd_layer"  # of a function that calls one


def calling(layer: Layer, called: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a name, as torch wants it, that tells which layer it calls."""

    def gemmd_layer(*inputs: Any) -> Any:
        return called(*inputs)

    setattr(gemmd_layer, _LAYER, layer)
    return gemmd_layer


def layer_of(node: Node) -> Layer | None:
    """The one that a node calls."""
    found: Layer | None = getattr(node.target, _LAYER, None)
    return found
