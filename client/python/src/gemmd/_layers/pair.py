"""Pair: what layers of two weights, gate_up and down, have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmd._layers.layer import Layer
from gemmd.buffer import Buffer

PARTS = ("gate_up", "down")  # of a published name


def names_of(name: str) -> tuple[str, str]:
    """What the two weights of a layer are published as; "" for a layer without a name."""
    gate_up, down = (f"{name}.{part}" if name else "" for part in PARTS)
    return gate_up, down


class Pair(Layer):
    """Base of `MLP` and `MoE`, whose weights are `buffers`, described by `weights`."""

    name: str
    buffers: tuple[Buffer, Buffer]
    weights: tuple[Any, Any]

    def dtype_for(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """As `Layer.dtype_for`."""
        found: np.dtype[Any] = self.weights[0].dtype_for(dtype)
        return found

    @property
    def _held(self) -> Any:
        return self.buffers

    def unpublish(self) -> None:
        """Takes the names away: the weights go when the last worker has let go of them."""
        for name in names_of(self.name):
            self.session.unpublish(name)

    def _let_go(self) -> None:
        self.session.delete_buffers(self.buffers)
