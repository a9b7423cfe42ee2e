"""A router and its experts as parts of a block: pure, as its recipe is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmd import ops
from gemmd._layers.choice import Choice
from gemmd._layers.forward import Way
from gemmd._layers.moe_step import ExpertWeights, MoeStep
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
        top_k, gate = self.choice.top_k, self.gate
        return MoeStep(self.gate_up, self.down, top_k, m, dtype, dtype, gate, way, self.choice)

    def bias(self, constants: Handle | None) -> Tensor | None:
        if self.bias_at is None or constants is None:
            return None
        return constants.tensor((self.gate_up.experts,), "f32", offset_bytes=self.bias_at)


class Behind:
    """Memory behind a place in some other's, for who asks it for tensors."""

    def __init__(self, memory: Handle, at: int) -> None:
        self._memory, self._at = memory, at

    def tensor(self, shape: Any, dtype: Any, *, offset_bytes: int = 0) -> Tensor:
        return self._memory.tensor(shape, dtype, offset_bytes=self._at + offset_bytes)
