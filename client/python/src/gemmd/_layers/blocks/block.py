"""Block: a stretch of a model between two things that gemmd does not do, as one call."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmd import errors
from gemmd._layers.blocks.block_step import BlockStep
from gemmd._layers.blocks.recipe import Mixed, Recipe
from gemmd._layers.forward import Way
from gemmd._layers.layer import Layer
from gemmd._memory import interop
from gemmd.buffer import Buffer

if TYPE_CHECKING:
    from gemmd.moe import MoE
    from gemmd.session import Session


class Block(Layer):
    """What `gemmd.compile` puts in the place of some nodes of a torch graph: x has the columns of all
    that they are given, side by side, and the result those of all that is taken from them.

    Parameters
    ----------
    session : Session
    recipe : Recipe
    held : tuple of Buffer
        The weights'.
    experts : tuple of MoE
        Those that the recipe mixes, which live as long as the block.
    constants : Buffer, optional
        The norms' vectors, and what the routers have.
    """

    name = ""

    def __init__(
        self,
        session: Session,
        recipe: Recipe,
        held: tuple[Buffer, ...],
        experts: tuple[MoE, ...] = (),
        constants: Buffer | None = None,
    ) -> None:
        self._given = held, experts, constants
        self.recipe = recipe
        self.weights = recipe.weights
        self._own = held if constants is None else (*held, constants)
        of_experts = (buffer for one in experts for buffer in one.buffers)
        self._held = (*held, *of_experts, *self._own[len(held) :])
        self._activation = recipe
        features = (recipe.in_features, recipe.out_features)
        super().__init__(session, self._held[0].device, features, None)

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
        of = self.weights[0] if self.weights else self.recipe.experts[0].down
        return of.dtype_for(dtype)

    def step(self, m: int, dtype: np.dtype[Any], way: Way) -> BlockStep:
        """As `Layer.step`."""
        return BlockStep(self.recipe, m, dtype, dtype, way)

    def routed(self, x: Any) -> list[Any]:
        """The rows that its routers see."""
        seen = _Seen(self.session, self.recipe.of_routed(), *self._given)
        rows = seen.run(x, copied=True)
        seen.close()
        widths = [seen.recipe.width(one) for one in seen.recipe.outputs]
        found = dict(zip(seen.recipe.outputs, rows.split(widths, -1), strict=True))
        return [found[one.of] for one in self.recipe.values if isinstance(one, Mixed)]

    def unpublish(self) -> None:
        """Takes the weights' names away."""
        for buffer in self._own:
            if buffer.published_name:
                with suppress(errors.NotFound):  # another worker was quicker
                    self.session.unpublish(buffer.published_name)

    def _let_go(self) -> None:
        self.session.delete_buffers(self._own)

    def __repr__(self) -> str:
        shapes = [f"{one.k} -> {one.n}" for one in self.weights]
        norms = f", {len(self.recipe.norms)} norms" if self.recipe.norms else ""
        of = [
            f"{one.gate_up.experts} experts, top {one.choice.top_k}" for one in self.recipe.experts
        ]
        kind = (self.weights or [self.recipe.experts[0].down])[0].shown
        return f"Block({', '.join([*shapes, *of])}{norms}, {kind}, {self._way()})"


class _Seen(Block):
    """A block's, of another recipe: closing it leaves the weights."""

    def _let_go(self) -> None:
        pass
