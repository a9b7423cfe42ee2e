"""Norms as an op: what lies in front of a transformer's matmuls."""

from __future__ import annotations

from gemmd import words
from gemmd._ops.op import Op
from gemmd._ops.operand import Granularity, OperandLike, as_operand
from gemmd.tensor import TensorLike, as_tensor
from gemmd.v1 import types_pb2 as pb


def normalize(
    src: TensorLike,
    dst: OperandLike,
    *,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    epsilon: float = 1e-5,
    centered: bool = False,
) -> Op:
    """dst = x / sqrt(mean(x**2) + epsilon) * weight + bias by rows of src, an RMSNorm. `centered`
    takes each row's mean from x first, a LayerNorm. In float32 and rounded once.

    Parameters
    ----------
    src : tensor [rows, n] or [batch, rows, n], float32, bfloat16 or float16
    dst : tensor of the same shape, float32, bfloat16 or float16; or Operand
        An Operand of float8_e4m3fn with scales of BLOCK_1X128 is quantised as `quantize` does, and
        is ready to be the next matmul's a.
    weight, bias : tensor [n], float32, optional
        By default 1 and 0.
    epsilon : float
        Finite, 0 or more.
    """
    source, target = as_tensor(src), as_operand(dst)
    if target.granularity not in (Granularity.NONE, Granularity.BLOCK_1X128):
        raise ValueError(
            f"dst has scales of {target.granularity.name}; normalize writes BLOCK_1X128 or none"
        )
    message = pb.Normalize(
        src=source.message,
        dst=target.values.message,
        scales=None if target.scales is None else target.scales.message,
        weight=None if weight is None else as_tensor(weight).message,
        bias=None if bias is None else as_tensor(bias).message,
        epsilon=words.number("epsilon", epsilon),
        centered=centered,
    )
    return Op("normalize", pb.Op(normalize=message), (source, target, weight, bias))
