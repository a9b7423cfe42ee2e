"""How a `Sequential`'s call lies in memory and which ops it is: the steps of its layers, one behind
the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gemmd._layers.forward import Forward, Way
from gemmd._layers.linear_step import Step, starts_of
from gemmd._layers.mlp_step import MlpStep
from gemmd.handle import Handle
from gemmd.ops import Op, Operand
from gemmd.tensor import Tensor


@dataclass(frozen=True)
class SequentialStep(Forward):
    """One forward pass over m rows. Scratch memory has what the steps need for themselves, in one
    place since they run one behind the other; then two places, of which each step's result has the
    one that its x does not.

    Attributes
    ----------
    steps : tuple of Step and MlpStep
        Of the layers. Each writes its result in the type that the next one takes: quantised, where
        two multiply in FP8 by blocks.
    """

    steps: tuple[Step | MlpStep, ...]
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
        results = [self._room_bytes(index) for index in range(len(self.steps) - 1)]
        own = max(step.scratch_bytes for step in self.steps)
        return starts_of([own, max(results[::2], default=0), max(results[1::2], default=0)])

    @property
    def scratch_bytes(self) -> int:
        return self._starts[-1]

    def _quantizes(self, index: int) -> bool:
        """Whether a step's matmul quantises its result for the next one."""
        step, after = self.steps[index], self.steps[index + 1].takes
        one = step.takes if isinstance(step, Step) else None
        return one is not None and all(w.quantized and not w.by_row for w in (one, after))

    def _room_bytes(self, index: int) -> int:
        """Of a step's result, which the next one takes."""
        step, after = self.steps[index], self.steps[index + 1]
        return after.takes.room_bytes(self.m) if self._quantizes(index) else step.d_bytes

    def _result(self, index: int, scratch: Handle) -> Tensor | Operand:
        """That result."""
        step, at = self.steps[index], self._starts[1 + index % 2]
        if self._quantizes(index):
            return self.steps[index + 1].takes.room(scratch, self.m, at)
        return scratch.tensor((self.m, step.n), step.out_dtype, offset_bytes=at)

    def _compute(
        self,
        weights: Sequence[Any],
        x: Tensor | Operand,
        scratch: Handle,
        d: Tensor | Operand,
    ) -> list[Op]:
        program = list[Op]()
        last = len(self.steps) - 1
        for index, (step, of_step) in enumerate(zip(self.steps, weights, strict=True)):
            result = d if index == last else self._result(index, scratch)
            program += step._compute(of_step, x, scratch, result)
            x = result
        return program
