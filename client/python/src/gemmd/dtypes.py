"""Element types: numpy's names for them and the wire's numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt

from gemmd.v1 import types_pb2 as pb

float32 = np.dtype(np.float32)
float16 = np.dtype(np.float16)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)
int8 = np.dtype(np.int8)
int32 = np.dtype(np.int32)  # counts, offsets and row numbers: moved, never multiplied

# One row a dtype; a new one is one more line.
_TABLE: tuple[tuple[np.dtype[np.generic], int, tuple[str, ...]], ...] = (
    (float32, pb.DTYPE_F32, ("f32", "float32", "fp32")),
    (bfloat16, pb.DTYPE_BF16, ("bf16", "bfloat16")),
    (float16, pb.DTYPE_F16, ("f16", "float16", "fp16")),
    (float8_e4m3fn, pb.DTYPE_E4M3, ("e4m3", "fp8", "float8_e4m3fn")),
    (float8_e5m2, pb.DTYPE_E5M2, ("e5m2", "float8_e5m2")),
    (int8, pb.DTYPE_I8, ("i8", "int8")),
    (int32, pb.DTYPE_I32, ("i32", "int32")),
)
_BY_WIRE = {wire: dtype for dtype, wire, _ in _TABLE}
_TO_WIRE = {dtype: wire for dtype, wire, _ in _TABLE}
_BY_NAME = {name: dtype for dtype, _, names in _TABLE for name in names}

DTypeLike = npt.DTypeLike


def as_dtype(dtype: DTypeLike) -> np.dtype[np.generic]:
    """The numpy dtype for a name ("f32", "bf16", "f16", "e4m3", "e5m2", "i8", "i32"), a numpy or
    ml_dtypes type, a dtype, or one of torch's.

    Raises
    ------
    TypeError
        If gemmd has no such element type.
    """
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
    if isinstance(dtype, str) and dtype in _BY_NAME:
        return _BY_NAME[dtype]
    try:
        found: object = np.dtype(dtype)
    except TypeError:  # numpy's words name no choice
        found = repr(dtype)
    if not isinstance(found, np.dtype) or found not in _TO_WIRE:
        known = ", ".join(names[0] for _, _, names in _TABLE)
        raise TypeError(f"dtype={found} is not an element type of gemmd; convert to one of {known}")
    return found


def to_wire(dtype: DTypeLike) -> int:
    """The value of the wire's enum DType."""
    return _TO_WIRE[as_dtype(dtype)]


def from_wire(wire: int) -> np.dtype[np.generic] | None:
    """The numpy dtype for a wire value; None for DTYPE_UNSPECIFIED (an untyped buffer)."""
    return None if wire == pb.DTYPE_UNSPECIFIED else _BY_WIRE[wire]
