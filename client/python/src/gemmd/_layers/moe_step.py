"""How an `MoE`'s call lies in memory and which ops it is: pure, as a `linear_step.Step` is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from gemmd import dtypes, grouped, ops
from gemmd._layers.choice import Choice
from gemmd._layers.forward import Forward, Way
from gemmd._layers.linear_step import Scaled, quantized_bytes, quantized_in, starts_of
from gemmd._memory.layout import padded
from gemmd.errors import FailedPrecondition
from gemmd.handle import Handle
from gemmd.ops import Gate, Granularity, Op, Operand
from gemmd.tensor import Tensor

_LABEL = "gemmd.MoE/1"
_LABEL_BY_ROW = "gemmd.MoE.row/1"
_BIAS = "+bias"
_WORD_BYTES = 4  # of an int32 expert, a float32 weight or logit
_ROW_BYTES = 16  # rows are multiples of it, as the fast kernels read them


@dataclass(frozen=True)
class ExpertWeights(Scaled):
    """One buffer with the matrices of all experts: values [experts, n, k] of float8_e4m3fn, their
    scales, and biases [experts, n].

    Attributes
    ----------
    by_row : bool
        One scale a row, and activations with one a row, too; else of 128x128 and of 1x128.
    """

    experts: int
    n: int
    k: int
    by_row: bool = False
    has_bias: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.experts, self.n, self.k

    @property
    def quantized(self) -> bool:
        return True

    @property
    def scales_shape(self) -> tuple[int, ...]:
        return self.granularity.scales_shape(self.shape)

    @property
    def scales_at(self) -> int:
        return padded(math.prod(self.shape))

    @property
    def bias_at(self) -> int:
        return self.scales_at + padded(4 * math.prod(self.scales_shape))

    @property
    def size_bytes(self) -> int:
        return self.bias_at + (padded(4 * self.experts * self.n) if self.has_bias else 0)

    @property
    def label(self) -> str:
        return (_LABEL_BY_ROW if self.by_row else _LABEL) + (_BIAS if self.has_bias else "")

    @property
    def shown(self) -> str:
        """Its type, for people."""
        return "float8_e4m3fn by row" if self.by_row else "float8_e4m3fn"

    @classmethod
    def of(cls, buffer: Handle) -> ExpertWeights:
        """Of a buffer that some MoE made.

        Raises
        ------
        FailedPrecondition
            Another kind of buffer has the name.
        """
        label = buffer.label.removesuffix(_BIAS)
        if label not in (_LABEL, _LABEL_BY_ROW) or len(buffer.shape) != 3:
            raise FailedPrecondition(
                f'{buffer!r} published as "{buffer.published_name}" was not made by gemmd.MoE;'
                " choose another name"
            )
        experts, n, k = buffer.shape
        return cls(experts, n, k, label == _LABEL_BY_ROW, label != buffer.label)

    def dtype_for(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """What activations are sent in."""
        return dtype if dtype in (dtypes.bfloat16, dtypes.float16) else dtypes.float32

    def operand(self, buffer: Handle) -> Operand:
        values = buffer.tensor(self.shape, dtypes.float8_e4m3fn)
        scales = buffer.tensor(self.scales_shape, "f32", offset_bytes=self.scales_at)
        return Operand(values, scales, self.granularity)

    def bias(self, buffer: Handle) -> Tensor | None:
        if not self.has_bias:
            return None
        return buffer.tensor((self.experts, self.n), "f32", offset_bytes=self.bias_at)

    def room_bytes(self, rows: int) -> int:
        """Of memory for an operand [rows, k] that the weights multiply."""
        return quantized_bytes((rows, self.k), self.of_activations)

    def room(self, memory: Handle, rows: int, at: int) -> Operand:
        """That operand, in such memory."""
        return quantized_in(memory, (rows, self.k), at, self.of_activations)


def are_by_row(scales: Sequence[int], shape: tuple[int, int, int]) -> bool:
    """Whether scales of a shape are one a row of each expert's weight; else they are of 128x128.

    Raises
    ------
    ValueError
        They are neither.
    """
    given, rows = tuple(scales), shape[:2]
    blocks = Granularity.BLOCK_128X128.scales_shape(shape)
    if given == blocks:
        return False
    if given in (rows, (*rows, 1)):
        return True
    raise ValueError(
        f"scales have shape {given}; experts of {shape} have one a block of 128x128, {blocks}, or"
        f" one a row, {rows} or {(*rows, 1)}"
    )


def choices_at(hidden: int, dtype: np.dtype[Any]) -> int:
    """The byte of a token's row where what is behind x begins: words of 4 bytes, which lie aligned."""
    return -(-hidden * dtype.itemsize // 4) * 4


def packed_columns(hidden: int, words: int, dtype: np.dtype[Any]) -> int:
    """Elements of a token's row: x, then so many words of 4 bytes, and padding."""
    nbytes = choices_at(hidden, dtype) + words * _WORD_BYTES
    return -(-nbytes // _ROW_BYTES) * _ROW_BYTES // dtype.itemsize


@dataclass(frozen=True)
class MoeStep(Forward):
    """One forward pass over m tokens. `io` is [tokens | result]; a token's row is x [hidden], the
    int32 experts [top_k] and their float32 weights [top_k], one behind the other; or x and the
    router's float32 logits [experts], of which the server chooses. A graph's call gives these as
    tensors of their own.
    """

    gate_up: ExpertWeights
    down: ExpertWeights
    top_k: int
    m: int
    in_dtype: np.dtype[Any]
    out_dtype: np.dtype[Any]
    gate: Gate
    way: Way
    choice: Choice | None = None

    filler: ClassVar[int | None] = 0xFF  # experts of -1, or logits that choose none

    @property
    def n(self) -> int:
        return self.down.n

    @property
    def rows(self) -> int:
        return self.m * self.top_k

    @property
    def columns(self) -> int:
        return packed_columns(self.gate_up.k, self._words, self.in_dtype)

    @property
    def _words(self) -> int:
        """Of a token, behind x."""
        return 2 * self.top_k if self.choice is None else self.gate_up.experts

    @property
    def _quantizes_behind(self) -> bool:
        """No gate writes scales of rows, and an activation alone writes none."""
        return self.down.by_row or self.gate.alone

    @property
    def _expanded(self) -> np.dtype[Any]:
        """Of the rows that are added up."""
        return self.out_dtype if self.out_dtype.itemsize == 2 else dtypes.float32

    @cached_property
    def _starts(self) -> list[int]:
        """Of offsets, rows, positions, x, h, the rows that are added up, h before it is quantised,
        and the chosen experts and weights; the end.
        """
        sizes = [4 * (self.gate_up.experts + 1), 4 * self.rows, 4 * self.rows]
        sizes += [one.room_bytes(self.rows) for one in (self.gate_up, self.down)]
        gated = self.rows * self.down.k * self.in_dtype.itemsize if self._quantizes_behind else 0
        chosen = 0 if self.choice is None else _WORD_BYTES * self.rows
        expanded = self.rows * self.n * self._expanded.itemsize
        return starts_of([*sizes, expanded, gated, chosen, chosen])

    @property
    def scratch_bytes(self) -> int:
        return self._starts[-1]

    def _input(self, io: Handle) -> tuple[Tensor, ...]:
        """x, experts and weights of the tokens' rows; or x and logits."""
        row_bytes = self.columns * self.in_dtype.itemsize
        x = self.x_of(io)[:, : self.gate_up.k]
        words = (self.m, row_bytes // 4)
        experts = io.tensor(words, "i32", offset_bytes=0)
        weights = io.tensor(words, "f32", offset_bytes=0)
        first = choices_at(self.gate_up.k, self.in_dtype) // 4
        if self.choice is not None:
            return x, weights[:, first : first + self._words]
        return (
            x,
            experts[:, first : first + self.top_k],
            weights[:, first + self.top_k : first + 2 * self.top_k],
        )

    def part_dtypes(self, count: int) -> tuple[np.dtype[Any], ...]:
        if self.choice is not None:
            return self.in_dtype, np.dtype(np.float32)
        return self.in_dtype, np.dtype(np.int32), np.dtype(np.float32)

    def _compute(
        self,
        weights: tuple[Handle, Handle],
        x: tuple[Tensor, ...],
        scratch: Handle,
        d: Tensor,
        bias: Tensor | None = None,
    ) -> list[Op]:
        """`bias`: of the choice."""
        offsets_at, rows_at, positions_at, a_at, h_at, expanded_at, gated_at, *chosen_at = (
            self._starts
        )
        choosing = list[Op]()
        if self.choice is None:
            tokens, experts, factors = x
        else:
            tokens, logits = x
            shape = self.m, self.top_k
            experts = scratch.tensor(shape, "i32", offset_bytes=chosen_at[0])
            factors = scratch.tensor(shape, "f32", offset_bytes=chosen_at[1])
            choosing.append(self.choice.op(logits, experts, factors, bias))
        offsets = scratch.tensor((self.gate_up.experts + 1,), "i32", offset_bytes=offsets_at)
        rows = scratch.tensor((self.rows,), "i32", offset_bytes=rows_at)
        positions = scratch.tensor((self.m, self.top_k), "i32", offset_bytes=positions_at)
        a = self.gate_up.room(scratch, self.rows, a_at)
        h = self.down.room(scratch, self.rows, h_at)
        expanded = scratch.tensor((self.rows, self.n), self._expanded, offset_bytes=expanded_at)
        of_gate_up, of_down = weights
        up, down = self.gate_up.operand(of_gate_up), self.down.operand(of_down)
        biases = self.gate_up.bias(of_gate_up), self.down.bias(of_down)
        gated, behind = h, list[Op]()
        if self._quantizes_behind:
            shape = (self.rows, self.down.k)
            gated = Operand(scratch.tensor(shape, self.in_dtype, offset_bytes=gated_at))
            behind.append(ops.quantize(gated.values, h))
        activated = {"activation": self.gate.activation} if self.gate.alone else {"gate": self.gate}
        return [
            *choosing,
            grouped.route(experts, offsets, rows, positions),
            ops.quantize(tokens, a, rows=rows),
            grouped.grouped_matmul(a, up, offsets, gated, bias=biases[0], **activated),
            *behind,
            grouped.grouped_matmul(h, down, offsets, expanded, bias=biases[1]),
            grouped.combine(expanded, positions, factors, d),
        ]


def check_experts(gate_up: ExpertWeights, down: ExpertWeights, gate: Gate) -> None:
    """Raises ValueError unless the products of one, gated, are what the other takes."""
    rows = down.k if gate.alone else 2 * down.k
    if gate_up.experts != down.experts or gate_up.n != rows:
        raise ValueError(
            f"gate_up is {list(gate_up.shape)}, down {list(down.shape)}: down takes {down.k}"
            f" columns of {down.experts} experts, gate_up must have {rows} rows for each"
            + (", as its gates are alone" if gate.alone else "")
        )
