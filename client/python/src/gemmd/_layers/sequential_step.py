"""How a `Sequential`'s call lies in memory and which ops it is: the steps of its layers, one behind
the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gemmd import dtypes
from gemmd._layers.linear_step import Forward, Way, starts_of
from gemmd.handle import Handle
from gemmd.ops import Op
from gemmd.tensor import Tensor


class _Behind:
    """The part of a buffer that begins at a byte, as a step takes a whole one."""

    def __init__(self, memory: Handle, at: int) -> None:
        self._memory = memory
        self._at = at

    def tensor(
        self, shape: Any, dtype: dtypes.DTypeLike, *, offset_bytes: int = 0
    ) -> Tensor:
        return self._memory.tensor(shape, dtype, offset_bytes=self._at + offset_bytes)


@dataclass(frozen=True)
class SequentialStep(Forward):
    """One forward pass over m rows. Scratch memory has what the steps need for themselves, in one
    place since they run one behind the other; then two places, of which each step's result has the
    one that its x does not.

    Attributes
    ----------
    steps : tuple of Forward
        Of the layers. Each writes its result in the type that the next one takes.
    """

    steps: tuple[Forward, ...]
    way: Way

    @property
    def m(self) -> int:  # type: ignore[override]
        return self.steps[0].m

    @property
    def in_dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        return self.steps[0].in_dtype

    @property
    def out_dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        return self.steps[-1].out_dtype

    @property
    def n(self) -> int:
        return self.steps[-1].n

    @property
    def columns(self) -> int:
        return self.steps[0].columns

    @cached_property
    def _starts(self) -> list[int]:
        """Of the steps' own memory, and of the results of even and of odd steps; the end."""
        results = [step.d_bytes for step in self.steps[:-1]]
        own = max(step.scratch_bytes for step in self.steps)
        return starts_of([own, max(results[::2], default=0), max(results[1::2], default=0)])

    @property
    def scratch_bytes(self) -> int:
        return self._starts[-1]

    def _compute(
        self, weights: Sequence[Any], io: Handle, scratch: Handle, d: Tensor
    ) -> list[Op]:
        program = list[Op]()
        x: Any = io
        last = len(self.steps) - 1
        for index, (step, of_step) in enumerate(zip(self.steps, weights, strict=True)):
            room = _Behind(scratch, self._starts[1 + index % 2])
            result = d if index == last else room.tensor((step.m, step.n), step.out_dtype)
            program += step._compute(of_step, x, scratch, result)
            x = room
        return program
