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
    addend: TensorLike | None = None,
    sum: TensorLike | None = None,
) -> Op:
    """dst = x / sqrt(mean(x**2) + epsilon) * weight + bias by rows, an RMSNorm. `centered` takes each
    row's mean from x first, a LayerNorm. In float32 and rounded once. x is src, or src + addend.

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
    addend : tensor of src's shape and dtype, optional
        The sum is rounded to that dtype before it is normalised.
    sum : likewise, optional
        Written: that sum. May be src or addend itself.
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
        addend=None if addend is None else as_tensor(addend).message,
        sum=None if sum is None else as_tensor(sum).message,
    )
    given = (source, target, weight, bias, addend, sum)
    return Op("normalize", pb.Op(normalize=message), given)
