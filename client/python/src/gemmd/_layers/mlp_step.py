"""How an `MLP`'s call lies in memory and which ops it is: pure, as a `linear_step.Step` is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gemmd import ops, words
from gemmd._layers.forward import Forward, Way
from gemmd._layers.linear_step import Weights, starts_of
from gemmd.handle import Handle
from gemmd.ops import Activation, Op, Operand
from gemmd.tensor import Tensor

Layout = Literal["halves", "interleaved"]

_PERIODS: dict[str, int] = {"halves": 0, "interleaved": 1}


@dataclass(frozen=True)
class Gate:
    """h = activation(gate) * up, and where the columns of the two lie in the gate_up product."""

    activation: Activation = "silu"
    layout: Layout = "halves"

    def __post_init__(self) -> None:
        words.check("layout", self.layout, _PERIODS)
        words.check("activation", self.activation, ops.ACTIVATIONS)

    def op(self, src: Tensor, dst: Operand) -> Op:
        return ops.gated(src, dst, activation=self.activation, period=_PERIODS[self.layout])

    @property
    def of_matmul(self) -> ops.Gate:
        return ops.Gate(self.activation, _PERIODS[self.layout])


@dataclass(frozen=True)
class MlpStep(Forward):
    """One forward pass over m rows. Scratch memory has, one behind the other: x as the matmul takes
    it, the gate_up product unless the matmul applies the gate, h, and what becomes h where no gate
    writes its scales.
    """

    gate_up: Weights
    down: Weights
    m: int
    in_dtype: np.dtype[Any]
    out_dtype: np.dtype[Any]
    gate: Gate
    way: Way

    @property
    def n(self) -> int:
        return self.down.n

    @property
    def columns(self) -> int:
        return self.gate_up.k

    @property
    def fuses(self) -> bool:
        """Whether a kernel may apply the gate as it multiplies: FP8 in halves of whole blocks."""
        halves = self.gate.layout == "halves" and self.down.k % 128 == 0
        blocks = self.gate_up.quantized and not (self.gate_up.by_row or self.down.by_row)
        return blocks and halves and not self.gate_up.has_bias

    @cached_property
    def _starts(self) -> list[int]:
        """Of x, the product, h, and h before it is quantised; the end."""
        product = 0 if self.fuses else self.m * self.gate_up.n * self.in_dtype.itemsize
        gated = self.m * self.down.k * self.in_dtype.itemsize if self.down.by_row else 0
        x, h = (weights.room_bytes(self.m) for weights in (self.gate_up, self.down))
        return starts_of([x, product, h, gated])

    @property
    def scratch_bytes(self) -> int:
        return self._starts[-1]

    @property
    def takes(self) -> Weights:
        return self.gate_up

    def _compute(
        self,
        weights: tuple[Handle, Handle],
        x: Tensor | Operand,
        scratch: Handle,
        d: Tensor | Operand,
    ) -> list[Op]:
        x_at, product_at, h_at, gated_at, _ = self._starts
        of_gate_up, of_down = weights
        program = list[Op]()
        a = self._brought(x, self.gate_up.room(scratch, self.m, x_at), program)
        h = self.down.room(scratch, self.m, h_at)
        up, down = self.gate_up.operand(of_gate_up), self.down.operand(of_down)
        if self.fuses:
            program.append(ops.matmul(a, up, h, gate=self.gate.of_matmul))
        else:
            shape = (self.m, self.gate_up.n)
            product = scratch.tensor(shape, self.in_dtype, offset_bytes=product_at)
            program.append(ops.matmul(a, up, product, bias=self.gate_up.bias(of_gate_up)))
            if self.down.by_row:  # no gate writes such scales
                shape = (self.m, self.down.k)
                gated = scratch.tensor(shape, self.in_dtype, offset_bytes=gated_at)
                program += [self.gate.op(product, Operand(gated)), ops.quantize(gated, h)]
            else:
                program.append(self.gate.op(product, h))
        return [*program, ops.matmul(h, down, d, bias=self.down.bias(of_down))]


def check_pair(gate_up: Weights, down: Weights) -> None:
    """Raises ValueError unless the product of one, gated, is what the other takes."""
    if gate_up.n != 2 * down.k:
        raise ValueError(
            f"gate_up is [{gate_up.n}, {gate_up.k}], down [{down.n}, {down.k}]: down takes"
            f" {down.k} columns, gate_up must have {2 * down.k} rows"
        )
    if gate_up.quantized != down.quantized:
        raise ValueError(
            f"gate_up is {gate_up.dtype}, down {down.dtype}; both are float8_e4m3fn or none is"
        )
