"""One forward pass of a layer: where its rows and its result lie, whatever its ops are."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from gemmd import ops
from gemmd._memory.layout import padded
from gemmd.handle import Handle
from gemmd.ops import Op, Operand
from gemmd.tensor import Tensor

Way = Literal["inline", "moved", "host_shared", "device_shared"]


class Forward:
    """One forward pass over m rows of x [m, ..] to a result [m, n]: frozen and hashable, so that
    plans are kept by it. Two buffers serve it: `io` with what goes in and comes out, [x | result],
    which is where the caller reaches it best, and the device's own scratch memory.

    Attributes
    ----------
    way : str
        "inline": x and the result travel with the call. "moved": by upload and download.
        "host_shared", "device_shared": they lie in memory that this process has mapped, and the
        plan is armed.
    """

    m: int
    in_dtype: np.dtype[Any]
    out_dtype: np.dtype[Any]
    way: Way

    filler: ClassVar[int | None] = None  # each byte of the rows that a call lacks, where it matters

    @property
    def n(self) -> int:
        raise NotImplementedError

    @property
    def columns(self) -> int:
        """Of x."""
        raise NotImplementedError

    @property
    def scratch_bytes(self) -> int:
        raise NotImplementedError

    def part_dtypes(self, count: int) -> tuple[np.dtype[Any], ...]:
        """Of the tensors that x is put together of."""
        return (self.in_dtype,) * count

    def _input(self, io: Handle) -> Any:
        """What `_compute` takes as x."""
        return self.x_of(io)

    def _compute(self, weights: Any, x: Any, scratch: Handle, d: Any) -> list[Op]:
        """The ops between x and d. An Operand is as a matmul takes it, or writes it for another."""
        raise NotImplementedError

    @property
    def x_bytes(self) -> int:
        return self.m * self.x_row_bytes

    @property
    def d_bytes(self) -> int:
        return self.m * self.d_row_bytes

    @property
    def d_at(self) -> int:
        return padded(self.x_bytes)

    @property
    def io_bytes(self) -> int:
        return self.d_at + padded(self.d_bytes)

    @property
    def x_row_bytes(self) -> int:
        return self.columns * self.in_dtype.itemsize

    @property
    def d_row_bytes(self) -> int:
        return self.n * self.out_dtype.itemsize

    def bring(self, x: npt.NDArray[Any], io: npt.NDArray[np.uint8]) -> None:
        """Puts x, of m rows or less, where the step reads it."""
        np.copyto(io[: x.nbytes], x.reshape(-1).view(np.uint8))
        if self.filler is not None:
            io[x.nbytes : self.x_bytes] = self.filler

    def filled(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """x with all the rows that the step has."""
        if len(x) == self.m:
            return x
        out = np.empty((self.m, self.columns), self.in_dtype)
        out[: len(x)] = x
        out[len(x) :].view(np.uint8)[...] = self.filler or 0
        return out

    def result_in(self, io: npt.NDArray[np.uint8], rows: int) -> npt.NDArray[Any]:
        """[rows, n], where the step has left it."""
        got = io[self.d_at : self.d_at + rows * self.d_row_bytes]
        return got.view(self.out_dtype).reshape(rows, self.n)

    def x_of(self, io: Handle) -> Tensor:
        return io.tensor((self.m, self.columns), self.in_dtype)

    def program(
        self,
        weights: Any,
        io: Handle | tuple[Tensor, ...],
        scratch: Handle,
        result: Tensor | None = None,
    ) -> list[Op]:
        """The ops, on the weights' buffer or buffers and these; a plan of them is rebound to
        others. `result`: where it goes instead of into `io`, which it must if `io` is the tensors
        that x is put together of, for a step that takes such.
        """
        if isinstance(io, tuple):
            return self._compute(weights, io, scratch, result)
        x = self.x_of(io)
        d = result or io.tensor((self.m, self.n), self.out_dtype, offset_bytes=self.d_at)
        program = self._compute(weights, self._input(io), scratch, d)
        if self.way != "inline":
            return program
        return [ops.write(x, np.zeros(x.shape, self.in_dtype)), *program, ops.read(d)]

    def _brought(self, x: Tensor | Operand, room: Operand, program: list[Op]) -> Operand:
        """x as a matmul takes it: quantised into `room`, or as it is."""
        if isinstance(x, Operand):
            return x
        if room.scales is not None:
            program.append(ops.quantize(x, room))
        elif self.way == "host_shared":  # kernels read A more than once, over PCIe perhaps
            program.append(ops.copy(x, room.values))
        else:
            return Operand(x)
        return room
