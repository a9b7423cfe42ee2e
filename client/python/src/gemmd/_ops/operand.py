"""Operands: a tensor with the scales it was quantised with, and how many elements share one."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from gemmd._ops.operators import Resident
from gemmd.tensor import Tensor, TensorLike, as_tensor
from gemmd.v1 import types_pb2 as pb

_SCALES_PADDING = 4  # floats: 16 bytes, which device kernels want strides to be multiples of


class Granularity(enum.IntEnum):
    """How many elements share one float32 scale; value = stored * scale. Rows are m of A or n of B;
    blocks run along k.
    """

    NONE = pb.SCALE_GRANULARITY_NONE
    PER_TENSOR = pb.SCALE_GRANULARITY_PER_TENSOR
    PER_ROW = pb.SCALE_GRANULARITY_PER_ROW
    BLOCK_1X128 = pb.SCALE_GRANULARITY_BLOCK_1X128
    BLOCK_128X128 = pb.SCALE_GRANULARITY_BLOCK_128X128

    def scales_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the scales of a matrix [rows, k] or [batch, rows, k]."""
        if len(shape) < 2:
            raise ValueError(f"shape={tuple(shape)}; scales are of a matrix, [rows, k], or a batch")
        *batch, rows, k = shape
        shapes: dict[Granularity, tuple[int, ...]] = {
            Granularity.PER_TENSOR: (1,),
            Granularity.PER_ROW: (rows,),
            Granularity.BLOCK_1X128: (rows, -(-k // 128)),
            Granularity.BLOCK_128X128: (-(-rows // 128), -(-k // 128)),
        }
        if self not in shapes:
            raise ValueError("granularity NONE has no scales")
        return (*batch, *shapes[self])

    def scales_room(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the float32 memory to make for the scales of a matrix [rows, k] or [batch, rows,
        k] that the server quantises: [ceil(k/128), rows rounded up to 4] for BLOCK_1X128, a batch
        in front; `scales_shape` for the others.
        """
        found = self.scales_shape(shape)
        if self is not Granularity.BLOCK_1X128:
            return found
        *batch, rows, blocks = found
        return (*batch, blocks, -(-rows // _SCALES_PADDING) * _SCALES_PADDING)

    def scales_in(self, room: Tensor, shape: Sequence[int]) -> Tensor:
        """The scales in `room`, a dense tensor of as many elements as `scales_room(shape)`.

        Those of BLOCK_1X128 lie column after column, with strides (1, rows rounded up to 4): the
        FP8 kernels of a GPU read a's scales so, and in any other layout a kernel copies them first,
        for every matmul. `quantize` writes through any strides, so the better layout costs nothing.
        To be taken without a copy the room must start at a multiple of 16 bytes, as buffers do.

        Returns
        -------
        Tensor
            Of shape `scales_shape(shape)`.

        Raises
        ------
        ValueError
            The room is not dense or has another size.
        """
        scales = room.reshape(*self.scales_room(shape))
        if self is not Granularity.BLOCK_1X128:
            return scales
        columns = scales.T
        return columns._view(self.scales_shape(shape), columns.strides, 0)  # there may be no rows


@dataclass(frozen=True)
class Operand(Resident):
    """A tensor and, when it is quantised, its scales.

    Attributes
    ----------
    values : Tensor
        [rows, k] or [batch, rows, k].
    scales : Tensor or None
        float32, of shape `granularity.scales_shape(values.shape)`; any strides, see
        `granularity.scales_in` for the fastest.
    granularity : Granularity
    """

    values: Tensor
    scales: Tensor | None = None
    granularity: Granularity = Granularity.NONE

    @property
    def T(self) -> Operand:
        """Values seen as [k, rows], for `session.matmul(a, weights.T)`. The scales keep speaking of
        [rows, k].
        """
        return Operand(self.values.T, self.scales, self.granularity)

    def __repr__(self) -> str:
        scaled = "" if self.scales is None else f", scales {self.granularity.name}"
        return f"Operand({self.values.dtype.name}{list(self.values.shape)}{scaled})"

    @property
    def message(self) -> pb.Operand:
        """As it travels."""
        return pb.Operand(
            values=self.values.message,
            granularity=int(self.granularity),  # type: ignore[arg-type]
            scales=None if self.scales is None else self.scales.message,
        )


OperandLike = Operand | TensorLike


def as_operand(value: OperandLike) -> Operand:
    return value if isinstance(value, Operand) else Operand(as_tensor(value))
