"""Which ops a linear layer is whose weight lies in parts on several devices: pure.

    split      a device has of the weight   of x      of the result
    columns    n/D rows of n                all       n/D columns
    rows       all n, k/D columns of k      k/D       n/D columns, after the others' sums have come

Parts are whole blocks of 128, the block of the weight's scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gemmd import ops
from gemmd._layers.linear_step import Weights, starts_of
from gemmd.grouped import combine
from gemmd.handle import Handle
from gemmd.ops import Activation, Op, Operand
from gemmd.tensor import Tensor

Split = Literal["columns", "rows"]

_BLOCK = 128


def bounds(extent: int, parts: int, what: str) -> list[int]:
    """Where each part begins, and the end behind the last.

    Raises
    ------
    ValueError
        There are fewer blocks of 128 than parts.
    """
    blocks = -(-extent // _BLOCK)
    if not 1 <= parts <= blocks:
        raise ValueError(
            f"{what}={extent} has {blocks} blocks of {_BLOCK} for {parts} devices; give fewer"
            " devices"
        )
    each, more = divmod(blocks, parts)
    return [_BLOCK * (i * each + min(i, more)) for i in range(parts)] + [extent]


def part_of(
    weight: Any, bias: Any, scales: Any, split: Split, part: int, parts: int
) -> tuple[Any, Any, Any]:
    """What one device has of a weight [n, k]: of its rows with their bias, or of its columns with
    all of the bias. `scales` as `Weights.scales_of` returns them.
    """
    n, k = (int(extent) for extent in weight.shape)
    edges = bounds(n, parts, "n") if split == "columns" else bounds(k, parts, "k")
    begin, end = edges[part], edges[part + 1]
    if split == "columns":
        some = None if scales is None else scales[_of_rows(begin, end, by_row=scales.ndim == 1)]
        return weight[begin:end], None if bias is None else bias[begin:end], some
    bounds(n, parts, "n")  # of which each device gives a part
    if scales is not None and scales.ndim == 2:
        scales = _dense(scales[:, _of_rows(begin, end)])
    return _dense(weight[:, begin:end]), bias, scales


def _of_rows(begin: int, end: int, by_row: bool = False) -> slice:
    """Which scales are those of rows, or of columns."""
    return slice(begin, end) if by_row else slice(begin // _BLOCK, -(-end // _BLOCK))


def _dense(matrix: Any) -> Any:
    if hasattr(matrix, "contiguous"):  # torch's
        return matrix.contiguous()
    return np.ascontiguousarray(matrix)


@dataclass(frozen=True)
class SplitWeights:
    """The parts, in the devices' order.

    Attributes
    ----------
    n, k : int
        Of the whole.
    """

    split: Split
    parts: tuple[Weights, ...]

    @property
    def n(self) -> int:
        if self.split == "rows":
            return self.parts[0].n
        return sum(part.n for part in self.parts)

    @property
    def k(self) -> int:
        if self.split == "columns":
            return self.parts[0].k
        return sum(part.k for part in self.parts)

    @property
    def of_n(self) -> list[int]:
        """Where each device's columns of the result begin, and the end."""
        return bounds(self.n, len(self.parts), "n")

    def x_of(self, x: npt.NDArray[Any], part: int) -> npt.NDArray[Any]:
        """What a device needs of x [m, k]."""
        if self.split == "columns":
            return x
        begin = sum(one.k for one in self.parts[:part])
        return np.ascontiguousarray(x[:, begin : begin + self.parts[part].k])

    def operand(self, buffer: Handle, part: int, begin: int, end: int) -> Operand:
        """The weight for columns [begin, end) of the result, of those that the part has."""
        whole = self.parts[part].operand(buffer)
        if self.split == "columns":
            return whole
        if whole.scales is None:
            return Operand(whole.values[begin:end])
        scales = whole.scales[_of_rows(begin, end, self.parts[part].by_row)]
        return Operand(whole.values[begin:end], scales, whole.granularity)


@dataclass(frozen=True)
class SplitStep:
    """One forward pass over m rows.

    Attributes
    ----------
    inline : bool
        x and the result travel with the call; else by upload and download.
    """

    weights: SplitWeights
    m: int
    in_dtype: np.dtype[Any]
    out_dtype: np.dtype[Any]
    activation: Activation
    inline: bool

    @property
    def exchanges(self) -> bool:
        return self.weights.split == "rows" and len(self.weights.parts) > 1

    def place(self, part: int) -> SplitPlace:
        """How a device's memory for the pass lies."""
        weights, m = self.weights, self.m
        k, edges = weights.parts[part].k, weights.of_n
        widths = [end - begin for begin, end in pairwise(edges)]
        sizes = {"x": m * k * self.in_dtype.itemsize}
        sizes["y"] = m * widths[part] * self.out_dtype.itemsize
        if weights.parts[part].quantized:
            sizes["a"] = weights.parts[part].room_bytes(m)
        if self.exchanges:
            count = len(widths)
            sizes["sums"] = count * sizes["y"]
            sizes["positions"] = sizes["ones"] = 4 * m * count
        *starts, end = starts_of(sizes.values())
        return SplitPlace(self, part, widths, dict(zip(sizes, starts, strict=True)), end)

    def positions(self) -> npt.NDArray[np.int32]:
        """Of `combine`: row t of every device's sums."""
        rows = np.arange(self.m, dtype=np.int32)[:, None]
        parts = np.arange(len(self.weights.parts), dtype=np.int32)[None, :]
        return np.ascontiguousarray(rows + np.int32(self.m) * parts)

    def program(self, weights: Sequence[Handle], memory: Sequence[Handle]) -> list[Op]:
        """The ops, on one buffer of weights and one of memory a device. A product that another
        device sums is stored there, and so travels while it is computed. Those come first: by the
        end of a device's own product the others' have arrived.
        """
        count = len(memory)
        places = [self.place(part) for part in range(count)]
        program = self._bring(places, memory)
        for place, buffer in zip(places, memory, strict=True):
            if place.quantized:
                program.append(ops.quantize(place.x(buffer), place.a(buffer)))
        for step in range(1 if self.exchanges else count, count + 1):
            program += [
                self._product(places, weights, memory, part, (part + step) % count)
                for part in range(count)
            ]
        if self.exchanges:
            program += [place.combine(buf) for place, buf in zip(places, memory, strict=True)]
        if self.inline:
            program += [ops.read(place.y(buf)) for place, buf in zip(places, memory, strict=True)]
        return program

    def _bring(self, places: Sequence[SplitPlace], memory: Sequence[Handle]) -> list[Op]:
        program: list[Op] = []
        if not self.inline:
            return program
        for part, place in enumerate(places):
            x = place.x(memory[part])
            if part == 0 or self.weights.split == "rows":
                program.append(ops.write(x, np.zeros(x.shape, self.in_dtype)))
            else:
                program.append(ops.copy(places[0].x(memory[0]), x))
        return program

    def _product(
        self,
        places: Sequence[SplitPlace],
        weights: Sequence[Handle],
        memory: Sequence[Handle],
        part: int,
        owner: int,
    ) -> Op:
        there = places[owner]
        d = there.sums(memory[owner], part) if self.exchanges else there.y(memory[owner])
        edges = self.weights.of_n
        begin, end = edges[owner], edges[owner + 1]
        bias = self.weights.parts[part].bias(weights[part]) if part == owner else None
        if bias is not None and self.weights.split == "rows":
            bias = bias[begin:end]
        b = self.weights.operand(weights[part], part, begin, end)
        a = places[part].a(memory[part])
        return ops.matmul(a, b, d, bias=bias, activation=self.activation)


@dataclass(frozen=True)
class SplitPlace:
    """Tensors in a device's memory for a pass."""

    step: SplitStep
    part: int
    widths: list[int]
    starts: dict[str, int]
    size_bytes: int

    @property
    def quantized(self) -> bool:
        return self.step.weights.parts[self.part].quantized

    @property
    def k(self) -> int:
        return self.step.weights.parts[self.part].k

    def _at(self, memory: Handle, name: str, shape: tuple[int, ...], dtype: Any) -> Tensor:
        return memory.tensor(shape, dtype, offset_bytes=self.starts[name])

    def x(self, memory: Handle) -> Tensor:
        return self._at(memory, "x", (self.step.m, self.k), self.step.in_dtype)

    def y(self, memory: Handle) -> Tensor:
        return self._at(memory, "y", (self.step.m, self.widths[self.part]), self.step.out_dtype)

    def a(self, memory: Handle) -> Operand:
        """x as the product takes it."""
        if not self.quantized:
            return Operand(self.x(memory))
        return self.step.weights.parts[self.part].room(memory, self.step.m, self.starts["a"])

    def sums(self, memory: Handle, part: int) -> Tensor:
        """A device's sums of this one's columns, which that one stores here."""
        m = self.step.m
        return self._all_sums(memory)[part * m : (part + 1) * m]

    def _all_sums(self, memory: Handle) -> Tensor:
        shape = (len(self.widths) * self.step.m, self.widths[self.part])
        return self._at(memory, "sums", shape, self.step.out_dtype)

    def combine(self, memory: Handle) -> Op:
        """Adds them, in the devices' order."""
        shape = (self.step.m, len(self.widths))
        positions = self._at(memory, "positions", shape, "i32")
        ones = self._at(memory, "ones", shape, "f32")
        return combine(self._all_sums(memory), positions, ones, self.y(memory))
