"""Ops: the steps of a program. Builders only describe work; `session.execute` and its relatives run
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, words
from gemmd._ops import narrowing
from gemmd._ops.op import Op as Op
from gemmd._ops.op import op_of
from gemmd._ops.operand import Granularity as Granularity
from gemmd._ops.operand import Operand as Operand
from gemmd._ops.operand import OperandLike as OperandLike
from gemmd._ops.operand import as_operand as as_operand
from gemmd.tensor import Tensor, TensorLike, as_tensor
from gemmd.v1 import types_pb2 as pb

Activation = Literal["none", "relu", "silu", "gelu_tanh", "gelu_erf", "relu_squared"]
ACTIVATIONS: dict[str, int] = {
    "none": pb.ACTIVATION_NONE,
    "relu": pb.ACTIVATION_RELU,
    "silu": pb.ACTIVATION_SILU,
    "gelu_tanh": pb.ACTIVATION_GELU_TANH,
    "gelu_erf": pb.ACTIVATION_GELU_ERF,
    "relu_squared": pb.ACTIVATION_RELU_SQUARED,
}


@dataclass(frozen=True)
class Gate:
    """activation(gate) * (up + up_offset) of a matmul's n columns, as `gated` has it.

    Attributes
    ----------
    activation : {"silu", "gelu_tanh", "gelu_erf", "relu", "relu_squared", "none"}
    period : int
        Columns of gate that lie together, in front of as many of up. 1: they alternate. 0: halves.
    alpha : float
        "silu" becomes x * sigmoid(alpha * x).
    limit : float
        Above 0: min(gate, limit), and up within [-limit, limit], before all else.
    up_offset : float
    alone : bool
        There are no ups: activation(product), of n columns; period and up_offset are 0.
    """

    activation: Activation = "silu"
    period: int = 0
    alpha: float = 1.0
    limit: float = 0.0
    up_offset: float = 0.0
    alone: bool = False

    @property
    def message(self) -> pb.Gate:
        """As it travels."""
        return pb.Gate(
            activation=activation_number(self.activation),  # type: ignore[arg-type]
            period=self.period,
            alpha=None if self.alpha == 1.0 else self.alpha,
            limit=self.limit,
            up_offset=self.up_offset,
            alone=self.alone,
        )


def check_gated(d: Operand) -> None:
    """Raises ValueError if a gate does not write such scales."""
    if d.granularity not in (Granularity.NONE, Granularity.BLOCK_1X128):
        raise ValueError(f"d has scales of {d.granularity.name}; a gate writes BLOCK_1X128 or none")


def matmul(
    a: OperandLike,
    b: OperandLike,
    d: OperandLike,
    *,
    c: TensorLike | None = None,
    bias: TensorLike | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    activation: Activation = "none",
    gate: Gate | None = None,
    kernel: str = "",
) -> Op:
    """d = activation(alpha * a @ b.T + beta * c + bias), or gated.

    Parameters
    ----------
    a : operand [m, k] or [batch, m, k]
    b : operand [n, k] or [batch, n, k]
        Weights as frameworks store them. For a row-major [k, n] matrix pass its `.T`.
    d : tensor [m, n] or [batch, m, n], float32, bfloat16 or float16; or Operand
        Written. Must not overlap a, b, scales or bias. With a gate n/2 columns, and an Operand of
        float8_e4m3fn with scales of BLOCK_1X128 too, which is ready to be the next matmul's a.
    c : tensor [m, n] of d's dtype, optional
        May be d itself. Needed when beta is not 0.
    bias : tensor [n], float32 or d's dtype, optional
        float32 with a gate.
    activation : {"none", "relu", "silu", "gelu_tanh", "gelu_erf", "relu_squared"}
    gate : Gate, optional
        Not beside c or an activation.
    kernel : str
        A kernel's name to insist on; by default the server chooses.
    """
    a_, b_, d_ = as_operand(a), as_operand(b), as_operand(d)
    check_gated(d_)
    message = pb.Matmul(
        a=a_.message,
        b=b_.message,
        d=d_.values.message,
        d_scales=None if d_.scales is None else d_.scales.message,
        gate=None if gate is None else gate.message,
        c=None if c is None else as_tensor(c).message,
        bias=None if bias is None else as_tensor(bias).message,
        alpha=None if alpha == 1.0 else alpha,
        beta=beta,
        activation=activation_number(activation),  # type: ignore[arg-type]
        kernel=kernel,
    )
    return Op("matmul", pb.Op(matmul=message), (a_, b_, d_, c, bias))


def activation_number(name: str) -> int:
    """The wire's number."""
    return words.chosen("activation", name, ACTIVATIONS)


def quantize(src: TensorLike, dst: Operand, *, rows: TensorLike | None = None) -> Op:
    """dst.values = round(src / scale), dst.scales = amax / largest finite, over each block of
    dst.granularity.

    Parameters
    ----------
    src : tensor [rows, k] or [batch, rows, k], float32, bfloat16 or float16
    dst : Operand of the same shape, float8_e4m3fn, float8_e5m2 or int8
    rows : tensor [rows of dst], int32, optional
        Row i of dst is row rows[i] of src; -1 leaves row i as it is. Then src and dst are matrices
        with as many columns, and scales are PER_ROW or BLOCK_1X128.
    """
    if dst.scales is None:
        raise ValueError("dst has no scales; make it with session.operand(shape, granularity)")
    source = as_tensor(src)
    message = pb.Quantize(
        src=source.message,
        dst=dst.values.message,
        scales=dst.scales.message,
        granularity=int(dst.granularity),  # type: ignore[arg-type]
        rows=None if rows is None else as_tensor(rows).message,
    )
    return Op("quantize", pb.Op(quantize=message), (source, dst, rows))


def gated(
    src: TensorLike,
    dst: OperandLike,
    *,
    activation: Activation = "silu",
    period: int = 0,
    alpha: float = 1.0,
    limit: float = 0.0,
    up_offset: float = 0.0,
    alone: bool = False,
) -> Op:
    """dst = activation(gate) * (up + up_offset), in float32 and rounded once.

    Parameters
    ----------
    src : tensor [rows, 2n] or [batch, rows, 2n], float32, bfloat16 or float16
        n columns of gate and n of up, or of gate alone.
    dst : tensor [rows, n] or [batch, rows, n], float32, bfloat16 or float16; or Operand
        An Operand of float8_e4m3fn with scales of BLOCK_1X128 is quantised as `quantize` does, and
        is ready to be the next matmul's a: `session.operand((rows, n), Granularity.BLOCK_1X128)`.
    activation : {"none", "relu", "silu", "gelu_tanh", "gelu_erf", "relu_squared"}
    period : int
        Columns of gate that lie together, in front of as many of up; divides n. 1: they alternate.
        0: n, two halves.
    alpha : float
        "silu" becomes x * sigmoid(alpha * x).
    limit : float
        Above 0: min(gate, limit), and up within [-limit, limit], before all else.
    up_offset : float
    alone : bool
        There are no ups: dst = activation(src), and src has n columns; period and up_offset are 0.
        Into an Operand an activation and a quantisation in one pass.
    """
    source, target = as_tensor(src), as_operand(dst)
    if target.granularity not in (Granularity.NONE, Granularity.BLOCK_1X128):
        raise ValueError(
            f"dst has scales of {target.granularity.name}; gated writes BLOCK_1X128 or none"
        )
    message = pb.Gated(
        src=source.message,
        dst=target.values.message,
        scales=None if target.scales is None else target.scales.message,
        activation=activation_number(activation),  # type: ignore[arg-type]
        period=period,
        alpha=None if alpha == 1.0 else alpha,
        limit=limit,
        up_offset=up_offset,
        alone=alone,
    )
    return Op("gated", pb.Op(gated=message), (source, target))


def convert(src: TensorLike, dst: TensorLike) -> Op:
    """dst = src in dst's dtype, rounded to nearest even; float8_e4m3fn saturates at 448, int8 at
    127 and -127. Same shape.
    """
    return op_of("convert", src=src, dst=dst)


def copy(src: TensorLike, dst: TensorLike) -> Op:
    """dst = src, of the same dtype and shape; strides may differ. Must not overlap.

    The way between devices: a program runs on the device that it writes, and reads other devices'
    buffers by `copy` alone.
    """
    return op_of("copy", src=src, dst=dst)


def fill(dst: TensorLike, value: float) -> Op:
    """Every element of dst = value, rounded as `convert` does."""
    d = as_tensor(dst)
    message = pb.Fill(dst=d.message, value=words.number("value", value))
    return Op("fill", pb.Op(fill=message), (d,))


def write(dst: TensorLike, data: npt.ArrayLike) -> Op:
    """Bytes of the request into dst. `data` must have its shape, and is converted to its dtype as
    `Buffer.upload` does.

    `session.execute` and `plan.run` hand it over in shared memory if the server is on this host and
    the program has 64 KiB or more to write and read. For data beyond a few MiB upload instead.
    """
    d = as_tensor(dst)
    return Op("write", None, (d,), moved=d, data=payload(d, data).tobytes())


def write_of(dst: Tensor, array: npt.NDArray[Any]) -> Op:
    """`write` without a copy of its own: of an array that stays as it is until the op has run."""
    return Op("write", None, (dst,), moved=dst, data=payload(dst, array))


def read(src: TensorLike) -> Op:
    """A tensor into the result's `outputs`, one per read, in order."""
    s = as_tensor(src)
    return Op("read", pb.Op(read=pb.Read(src=s.message)), (s,), moved=s)


def payload(dst: Tensor, data: npt.ArrayLike) -> memoryview:
    """`data` as the dense little-endian bytes that a write to `dst` carries: its own, if it is an
    array that has them so.
    """
    array = narrowing.fitted("data", data, dtypes.as_dtype(dst.dtype))
    if array.shape != dst.shape:
        raise ValueError(f"data has shape {array.shape}, the tensor {dst.shape}")
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
