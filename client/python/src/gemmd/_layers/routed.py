"""A router and its experts as parts of a block: pure, as its recipe is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmd import ops
from gemmd._layers.choice import Choice
from gemmd._layers.forward import Way
from gemmd._layers.moe_step import ExpertWeights, MoeStep
from gemmd._memory.layout import padded
from gemmd.handle import Handle
from gemmd.ops import Gate, Op
from gemmd.tensor import Tensor


@dataclass(frozen=True)
class Router:
    """A matmul whose results, in float32, choose experts. Its weight, of x's type or of float32, and
    its bias lie in the block's own buffer.
    """

    experts: int
    columns: int
    dtype: np.dtype[Any]
    weight_at: int
    bias_at: int | None

    def program(
        self, x: Tensor, widened: Tensor | None, logits: Tensor, constants: Handle
    ) -> list[Op]:
        """`widened`: room for x in the weight's type, if that is another."""
        shape = self.experts, self.columns
        weight = constants.tensor(shape, self.dtype, offset_bytes=self.weight_at)
        bias = None
        if self.bias_at is not None:
            bias = constants.tensor((self.experts,), "f32", offset_bytes=self.bias_at)
        if widened is None:
            return [ops.matmul(x, weight, logits, bias=bias)]
        return [ops.convert(x, widened), ops.matmul(widened, weight, logits, bias=bias)]


@dataclass(frozen=True)
class Chosen:
    """Experts, and how a token's are chosen.

    Attributes
    ----------
    bias_at : int, optional
        Where the choice's bias lies in the block's own buffer.
    """

    gate_up: ExpertWeights
    down: ExpertWeights
    gate: Gate
    choice: Choice
    bias_at: int | None

    def step(self, m: int, dtype: np.dtype[Any], way: Way) -> MoeStep:
        return MoeStep(self.gate_up, self.down, self.choice.top_k, m, dtype, dtype, self.gate, way)

    def rooms(self, step: MoeStep) -> Iterator[tuple[str, int]]:
        """What lies in scratch memory, and how many bytes each takes."""
        yield "experts", padded(4 * step.rows)
        yield "weights", padded(4 * step.rows)
        yield "moe", step.scratch_bytes

    def program(
        self,
        step: MoeStep,
        x: Tensor,
        logits: Tensor,
        held: tuple[Handle, Handle],
        constants: Handle | None,
        scratch: Handle,
        places: dict[str, int],
        d: Tensor,
    ) -> list[Op]:
        """The ops, whose scratch memory begins at these places."""
        shape = step.m, self.choice.top_k
        experts = scratch.tensor(shape, "i32", offset_bytes=places["experts"])
        weights = scratch.tensor(shape, "f32", offset_bytes=places["weights"])
        bias = None
        if self.bias_at is not None and constants is not None:
            shape_of_bias = (self.gate_up.experts,)
            bias = constants.tensor(shape_of_bias, "f32", offset_bytes=self.bias_at)
        behind: Any = _Behind(scratch, places["moe"])
        return [
            self.choice.op(logits, experts, weights, bias),
            *step._compute(held, (x, experts, weights), behind, d),
        ]


class _Behind:
    """Memory behind a place in some other's, for who asks it for tensors."""

    def __init__(self, memory: Handle, at: int) -> None:
        self._memory, self._at = memory, at

    def tensor(self, shape: Any, dtype: Any, *, offset_bytes: int = 0) -> Tensor:
        return self._memory.tensor(shape, dtype, offset_bytes=self._at + offset_bytes)
