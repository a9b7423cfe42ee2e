"""Block: a stretch of a model between two things that gemmd does not do, as one call."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmd import errors
from gemmd._layers.forward import Way
from gemmd._layers.layer import Layer
from gemmd._layers.recipe import BlockStep, Recipe
from gemmd._memory import interop
from gemmd.buffer import Buffer

if TYPE_CHECKING:
    from gemmd.session import Session


class Block(Layer):
    """What `gemmd.compile` puts in the place of some nodes of a torch graph: x has the columns of all
    that they are given, side by side, and the result those of all that is taken from them.

    Parameters
    ----------
    session : Session
    recipe : Recipe
    held : tuple of Buffer
        The weights', and behind them that of the norms' vectors, if there are any.
    """

    name = ""

    def __init__(self, session: Session, recipe: Recipe, held: tuple[Buffer, ...]) -> None:
        self.recipe = recipe
        self.weights = recipe.weights
        self._held = held
        self._activation = recipe
        features = (recipe.in_features, recipe.out_features)
        super().__init__(session, held[0].device, features, None)

    def of_parts(self, *parts: Any) -> Any:
        """`forward` of what x is put together of, side by side; a graph's calls read each where it
        lies.
        """
        if len(parts) == 1:
            return self.forward(parts[0])
        result = self.captured(parts)
        return self.forward(interop.torch_module().cat(parts, -1)) if result is None else result

    def dtype_for(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """As `Layer.dtype_for`."""
        return self.weights[0].dtype_for(dtype)

    def step(self, m: int, dtype: np.dtype[Any], way: Way) -> BlockStep:
        """As `Layer.step`."""
        return BlockStep(self.recipe, m, dtype, dtype, way)

    def unpublish(self) -> None:
        """Takes the weights' names away."""
        for buffer in self._held:
            if buffer.published_name:
                with suppress(errors.NotFound):  # another worker was quicker
                    self.session.unpublish(buffer.published_name)

    def _let_go(self) -> None:
        self.session.delete_buffers(self._held)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{one.k} -> {one.n}" for one in self.weights)
        norms = f", {len(self.recipe.norms)} norms" if self.recipe.norms else ""
        return f"Block({shapes}{norms}, {self.weights[0].shown}, {self._way()})"
