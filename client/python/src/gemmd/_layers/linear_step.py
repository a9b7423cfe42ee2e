"""How `Linear` lies in memory and which ops it is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, ops, words
from gemmd._layers.forward import Forward, Way
from gemmd._memory import interop
from gemmd._memory.layout import padded
from gemmd._ops import narrowing
from gemmd.errors import FailedPrecondition
from gemmd.handle import Handle
from gemmd.ops import Activation, Granularity, Op, Operand
from gemmd.tensor import Tensor
from gemmd.v1 import device_service_pb2 as pb

Quantize = Literal["fp8-block", "fp8-row"]

# A published weight says by its label how it is laid out: another process reads it there.
_LABEL = "gemmd.Linear/1"
_LABEL_BY_ROW = "gemmd.Linear.row/1"
_BIAS = "+bias"


class Scaled:
    """What has scales of one kind or the other; a dataclass of weights says which."""

    by_row: bool

    @property
    def granularity(self) -> Granularity:
        return Granularity.PER_ROW if self.by_row else Granularity.BLOCK_128X128

    @property
    def of_activations(self) -> Granularity:
        """Of an operand that the weights multiply."""
        return Granularity.PER_ROW if self.by_row else Granularity.BLOCK_1X128


@dataclass(frozen=True)
class Weights(Scaled):
    """One buffer with everything that does not change: values [n, k], their scales, a bias.

    Attributes
    ----------
    dtype : numpy.dtype
        float8_e4m3fn has scales; other types have none.
    by_row : bool
        One scale a row, and activations with one a row, too; else of 128x128 and of 1x128.
    """

    n: int
    k: int
    dtype: np.dtype[Any]
    has_bias: bool
    by_row: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.k

    @property
    def quantized(self) -> bool:
        return bool(self.dtype == dtypes.float8_e4m3fn)

    @property
    def scales_shape(self) -> tuple[int, ...]:
        return self.granularity.scales_shape((self.n, self.k))

    def scales_of(self, given: Any) -> npt.NDArray[np.float32]:
        """Those, in float32, as they lie behind the values: a single one stands for all."""
        scales = np.asarray(interop.as_numpy(given), np.float32)
        shape = () if scales.size == 1 else self.scales_shape
        return np.broadcast_to(scales.reshape(shape), self.scales_shape)

    @property
    def scales_at(self) -> int:
        return padded(self.n * self.k * self.dtype.itemsize)

    @property
    def bias_at(self) -> int:
        return self.scales_at + (padded(4 * math.prod(self.scales_shape)) if self.quantized else 0)

    @property
    def size_bytes(self) -> int:
        return self.bias_at + (padded(4 * self.n) if self.has_bias else 0)

    @property
    def label(self) -> str:
        return (_LABEL_BY_ROW if self.by_row else _LABEL) + (_BIAS if self.has_bias else "")

    @property
    def shown(self) -> str:
        """Its type, for people."""
        return self.dtype.name + (" by row" if self.by_row else "")

    @classmethod
    def of(cls, buffer: Handle) -> Weights:
        """Of a buffer that some Linear made.

        Raises
        ------
        FailedPrecondition
            Another kind of buffer has the name.
        """
        label = buffer.label.removesuffix(_BIAS)
        if label not in (_LABEL, _LABEL_BY_ROW) or buffer.dtype is None or len(buffer.shape) != 2:
            lacks = "is not laid out as gemmd.Linear's weights"
            if buffer.dtype is None or len(buffer.shape) != 2:
                lacks = "is no matrix"
            elif buffer.dtype == dtypes.float8_e4m3fn:
                n, k = Granularity.BLOCK_128X128.scales_shape(buffer.shape)
                lacks = (
                    f"has no scales behind it, float32: of 128x128 [{n}, {k}], or one a row"
                    f" [{buffer.shape[0]}]"
                )
            raise FailedPrecondition(
                f"{buffer!r} {lacks}: it was not made by gemmd.Linear, nor loaded as a weight"
                " of it; choose another name, or use session.matmul"
            )
        has_bias = label != buffer.label
        return cls(*buffer.shape, buffer.dtype, has_bias, label == _LABEL_BY_ROW)

    def dtype_for(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """What activations are sent in: their own dtype, where the kernels take it."""
        if not self.quantized:
            return self.dtype
        return dtype if dtype in (dtypes.bfloat16, dtypes.float16) else dtypes.float32

    def operand(self, buffer: Handle) -> Operand:
        values = buffer.tensor((self.n, self.k), self.dtype)
        if not self.quantized:
            return Operand(values)
        scales = buffer.tensor(self.scales_shape, "f32", offset_bytes=self.scales_at)
        return Operand(values, scales, self.granularity)

    def room_bytes(self, rows: int) -> int:
        """Of memory for an operand [rows, k] that the weights multiply."""
        if self.quantized:
            return quantized_bytes((rows, self.k), self.of_activations)
        return padded(rows * self.k * self.dtype.itemsize)

    def room(self, memory: Handle, rows: int, at: int = 0) -> Operand:
        """That operand, in such memory."""
        if self.quantized:
            return quantized_in(memory, (rows, self.k), at, self.of_activations)
        return Operand(memory.tensor((rows, self.k), self.dtype, offset_bytes=at))

    def bias(self, buffer: Handle) -> Tensor | None:
        if not self.has_bias:
            return None
        return buffer.tensor((self.n,), "f32", offset_bytes=self.bias_at)


def quantized_bytes(shape: tuple[int, int], kind: Granularity = Granularity.BLOCK_1X128) -> int:
    """Of activations [m, k] of float8_e4m3fn with their scales behind them."""
    return padded(math.prod(shape)) + padded(4 * math.prod(kind.scales_room(shape)))


def quantized_in(
    memory: Handle,
    shape: tuple[int, int],
    at: int = 0,
    kind: Granularity = Granularity.BLOCK_1X128,
) -> Operand:
    values = memory.tensor(shape, dtypes.float8_e4m3fn, offset_bytes=at)
    scales_at = at + padded(math.prod(shape))
    room = memory.tensor(kind.scales_room(shape), "f32", offset_bytes=scales_at)
    return Operand(values, kind.scales_in(room, shape), kind)


def starts_of(sizes: Iterable[int]) -> list[int]:
    """Where pieces of memory begin, one behind the other, and the end."""
    return list(accumulate((padded(size) for size in sizes), initial=0))


@dataclass(frozen=True)
class Step(Forward):
    """A forward pass of a Linear."""

    weights: Weights
    m: int
    in_dtype: np.dtype[Any]
    out_dtype: np.dtype[Any]
    activation: Activation
    way: Way

    @property
    def n(self) -> int:
        return self.weights.n

    @property
    def columns(self) -> int:
        return self.weights.k

    @property
    def scratch_bytes(self) -> int:
        return self.weights.room_bytes(self.m)

    @property
    def takes(self) -> Weights:
        return self.weights

    def _compute(
        self, weights: Handle, x: Tensor | Operand, scratch: Handle, d: Tensor | Operand
    ) -> list[Op]:
        program = list[Op]()
        a = self._brought(x, self.weights.room(scratch, self.m), program)
        operand, bias = self.weights.operand(weights), self.weights.bias(weights)
        if isinstance(d, Operand):  # activated and quantised as it is multiplied
            alone = ops.Gate(self.activation, alone=True)
            return [*program, ops.matmul(a, operand, d, bias=bias, gate=alone)]
        return [*program, ops.matmul(a, operand, d, bias=bias, activation=self.activation)]


def other_gpu(uuid: str, home: str, devices: Iterable[pb.Device]) -> str:
    """Why the GPU of that UUID is not the server's device `home`; "" if it is."""
    if any(one.name == home and one.gpu_uuid == uuid for one in devices):
        return ""
    return f"the weight is on {home}, which is not {uuid}"


def rows_of(shape: Sequence[int], k: int) -> int:
    """The rows of x [.., k].

    Raises
    ------
    ValueError
        The last extent is not k.
    """
    if not shape or shape[-1] != k:
        raise ValueError(f"x has shape {tuple(shape)}, the last extent must be k={k}")
    return math.prod(shape[:-1])


def layout_of(weight: Any, bias: Any, scales: Any, quantize: str | None) -> Weights:
    """Of an array or torch tensor [n, k] of an element type of gemmd.

    Raises
    ------
    ValueError
        The weight is no matrix, or bias or scales do not fit it.
    """
    shape = tuple(int(extent) for extent in weight.shape)
    if len(shape) != 2 or 0 in shape:
        wanted = "[n, k] of 1 and more" if len(shape) == 2 else "[n, k]"
        raise ValueError(f"weight has shape {shape}; {wanted} is needed, as frameworks keep it")
    if quantize is not None:
        words.check("quantize", quantize, get_args(Quantize))
    dtype = narrowing.multiplied_as("weight", weight)
    check_has_scales(dtype, scales)
    by_row = quantize == "fp8-row" if scales is None else are_by_row(np.shape(scales), shape)
    if bias is not None and tuple(np.shape(bias)) != shape[:1]:
        raise ValueError(
            f"bias has shape {tuple(np.shape(bias))}; a weight of {shape} takes {shape[:1]}"
        )
    if dtype == dtypes.int8:
        raise ValueError("an int8 weight has no scales here; use session.matmul")
    if dtype == dtypes.float8_e5m2 and quantize is None:
        raise ValueError(
            "a weight of float8_e5m2 would have x rounded to its 2 bits; convert it, or give"
            ' quantize="fp8-block"'
        )
    kept = dtypes.float8_e4m3fn if quantize is not None else dtype
    return Weights(*shape, kept, bias is not None, by_row)


def check_has_scales(dtype: np.dtype[Any] | None, scales: Any) -> None:
    """Raises ValueError unless a weight has scales where its type needs them."""
    if (dtype == dtypes.float8_e4m3fn) != (scales is not None):
        raise ValueError(
            f"a weight of {dtype} {'with' if scales is not None else 'without'} scales;"
            " float8_e4m3fn needs them, other types have none"
        )


def are_by_row(scales: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether scales of a shape are one a row of a weight [n, k]; else they are of 128x128, or a
    single one for all.

    Raises
    ------
    ValueError
        They are neither.
    """
    given, rows = tuple(scales), (shape[0],)
    blocks = Granularity.BLOCK_128X128.scales_shape(shape)
    if given == blocks or math.prod(given) == 1:
        return False
    if given in (rows, (*rows, 1)):
        return True
    raise ValueError(
        f"scales have shape {given}; a weight of {tuple(shape)} has one a block of 128x128,"
        f" {blocks}, or one a row, {rows} or {(*rows, 1)}"
    )


def taken(weight: Any, *, bias: Any, scales: Any) -> Any:
    """A weight as a torch tensor or an array of an element type of gemmd.

    Raises
    ------
    TypeError
        It, the bias or the scales are of a type that is not multiplied.
    """
    given = weight if interop.torch_of(weight) is not None else interop.as_numpy(weight)
    dtype = narrowing.multiplied_as("weight", given)
    for name, value in (("bias", bias), ("scales", scales)):
        if value is not None:
            narrowing.check(name, interop.as_numpy(value), dtypes.float32)
    narrowing.warn_of(weight=given, bias=bias, scales=scales)
    return interop.as_type(given, dtype)


def activations(x: Any) -> np.dtype[Any]:
    """As `narrowing.activations_as`, of an array or a tensor, with a warning of float64."""
    found = narrowing.activations_as(x.dtype)
    narrowing.warn_of(x=x)
    return found


def float_bytes(array: Any) -> memoryview:
    """An array or torch tensor as dense float32."""
    dense = np.ascontiguousarray(interop.as_numpy(array), np.float32)
    return dense.reshape(-1).view(np.uint8).data
