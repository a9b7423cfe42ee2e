"""Ops for mixtures of experts: their choice, rows to them, grouped matmuls, weighted sums of rows.

A whole layer is one program:

    choose(logits, ids, weights)
    route(ids, offsets, rows, positions)
    quantize(x, a, rows=rows)
    grouped_matmul(a, gate_up, offsets, h, gate=Gate("silu"))
    grouped_matmul(h, down, offsets, expanded)
    combine(expanded, positions, weights, y)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gemmd import words
from gemmd._ops.op import op_of
from gemmd.ops import (
    Activation,
    Gate,
    Op,
    OperandLike,
    activation_number,
    as_operand,
    check_gated,
)
from gemmd.tensor import TensorLike, as_tensor
from gemmd.v1 import types_pb2 as pb

GroupLayout = Literal["offsets", "counts", "row_ids", "ends"]
GROUP_LAYOUTS: dict[str, int] = {
    "offsets": pb.GROUP_LAYOUT_OFFSETS,
    "counts": pb.GROUP_LAYOUT_COUNTS,
    "row_ids": pb.GROUP_LAYOUT_ROW_IDS,
    "ends": pb.GROUP_LAYOUT_ENDS,
}

RouterScores = Literal["softmax", "sigmoid"]
ROUTER_SCORES: dict[str, int] = {
    "softmax": pb.ROUTER_SCORES_SOFTMAX,
    "sigmoid": pb.ROUTER_SCORES_SIGMOID,
}
GroupScore = Literal["max", "top2_sum"]
GROUP_SCORES: dict[str, int] = {
    "max": pb.GROUP_SCORE_MAX,
    "top2_sum": pb.GROUP_SCORE_TOP2_SUM,
}


def group_layout_number(layout: str) -> int:
    """The wire's number."""
    return words.chosen("layout", layout, GROUP_LAYOUTS)


def grouped_matmul(
    a: OperandLike,
    b: OperandLike | Sequence[OperandLike],
    groups: TensorLike,
    d: OperandLike,
    *,
    layout: GroupLayout = "offsets",
    alignment: int = 1,
    gate: Gate | None = None,
    bias: TensorLike | None = None,
    alpha: float = 1.0,
    activation: Activation = "none",
    expected_rows: int = 0,
    kernel: str = "",
) -> Op:
    """For the rows of each group g: d = activation(alpha * a @ b[g].T + bias[g]), or gated.

    `groups` is read when the op runs, so that one plan serves every routing. Rows of no group are
    not written. A number that cannot be ends the run with InvalidArgument.

    Parameters
    ----------
    a : operand [m, k], or [groups, m_max, k] for "counts"
    b : operand [groups, n, k], or a list or tuple of operands [n, k]
        A matrix for each group. Those of a list lie anywhere, each in a buffer of its own if need
        be; they are alike in shape, dtype, strides and granularity.
        Weights that lie [groups, k, n] are given as their `T`: in bfloat16 and float16 they are
        read so, in other types by a kernel that is much slower.
    groups : tensor, int32
        "offsets": [groups + 1], group g has rows groups[g] up to groups[g + 1]. "counts":
        [groups], the first groups[g] rows of item g. "row_ids": [m], each row's group or -1,
        ordered by group. "ends": [groups], up to groups[g], from the end before it rounded up to
        `alignment`.
    d : tensor [m, n] or [groups, m_max, n], float32, bfloat16 or float16; or Operand
        With a gate n/2 columns, and an Operand of float8_e4m3fn with scales of BLOCK_1X128 too,
        which is ready to be the next matmul's a.
    layout : {"offsets", "counts", "row_ids", "ends"}
    alignment : int
        Of "ends".
    gate : Gate, optional
    bias : tensor [groups, n], float32 or d's dtype, optional
    expected_rows : int
        Of all groups, for estimates and the choice of a kernel. 0: all that a has.
    kernel : str
        A kernel's name to insist on; by default the server chooses.
    """
    number = group_layout_number(layout)
    a_, d_, numbers = as_operand(a), as_operand(d), as_tensor(groups)
    apart = isinstance(b, Sequence)
    matrices = [as_operand(one) for one in (b if isinstance(b, Sequence) else (b,))]
    if not matrices:
        raise ValueError("b is an empty list; give a matrix for each group")
    check_gated(d_)
    message = pb.GroupedMatmul(
        a=a_.message,
        b=None if apart else matrices[0].message,
        weights=[one.message for one in matrices] if apart else (),
        groups=numbers.message,
        layout=number,  # type: ignore[arg-type]
        alignment=0 if alignment == 1 else alignment,
        d=d_.values.message,
        d_scales=None if d_.scales is None else d_.scales.message,
        gate=None if gate is None else gate.message,
        bias=None if bias is None else as_tensor(bias).message,
        alpha=None if alpha == 1.0 else alpha,
        activation=activation_number(activation),  # type: ignore[arg-type]
        kernel=kernel,
        expected_rows=expected_rows,
    )
    return Op("grouped_matmul", pb.Op(grouped_matmul=message), (a_, matrices, numbers, d_, bias))


def k_grouped_matmul(
    a: OperandLike,
    b: OperandLike,
    groups: TensorLike,
    d: TensorLike,
    *,
    c: TensorLike | None = None,
    layout: Literal["offsets", "ends"] = "offsets",
    alignment: int = 1,
    alpha: float = 1.0,
    beta: float = 0.0,
    kernel: str = "",
) -> Op:
    """For each group g, over its columns of a and b alone: d[g] = alpha * a @ b.T + beta * c[g].

    The gradient of a `grouped_matmul`'s weights: columns here are rows there, so a and b are the
    transposed gradients and activations. `groups` is read when the op runs. A group without columns
    leaves beta * c, and 0 without c.

    Parameters
    ----------
    a : operand [m, k], k of all groups together
    b : operand [n, k]
        Of a's dtype, or one of float8_e4m3fn and float8_e5m2 where a is the other.
    groups : tensor, int32
        "offsets": [groups + 1], group g has columns groups[g] up to groups[g + 1]. "ends":
        [groups], up to groups[g], from the end before it rounded up to `alignment`. With scales of
        BLOCK_1X128 a group starts at a multiple of 128; it ends anywhere, and what stands behind
        its end, up to the next multiple, does not count.
    d : tensor [groups, m, n], float32, bfloat16 or float16
    c : tensor [groups, m, n], d's dtype, optional
        May be d itself. Needed when beta is not 0.
    alignment : int
        Of "ends".
    kernel : str
        A kernel's name to insist on; by default the server chooses.
    """
    if layout not in ("offsets", "ends"):
        raise ValueError(f"layout {layout!r} does not tell columns; use offsets or ends")
    a_, b_ = as_operand(a), as_operand(b)
    numbers, d_ = as_tensor(groups), as_tensor(d)
    c_ = None if c is None else as_tensor(c)
    message = pb.KGroupedMatmul(
        a=a_.message,
        b=b_.message,
        groups=numbers.message,
        layout=group_layout_number(layout),  # type: ignore[arg-type]
        alignment=0 if alignment == 1 else alignment,
        d=d_.message,
        c=None if c_ is None else c_.message,
        alpha=None if alpha == 1.0 else alpha,
        beta=beta,
        kernel=kernel,
    )
    return Op("k_grouped_matmul", pb.Op(k_grouped_matmul=message), (a_, b_, numbers, d_, c_))


def choose(
    logits: TensorLike,
    experts: TensorLike,
    weights: TensorLike,
    *,
    bias: TensorLike | None = None,
    scores: RouterScores = "softmax",
    renormalize: bool = True,
    scale: float = 1.0,
    groups: int = 1,
    top_groups: int = 1,
    group_score: GroupScore = "max",
) -> Op:
    """Each token's experts and their weights from a router's logits, in float32.

    s = softmax(logits) or sigmoid(logits). The experts of the largest s + bias are chosen, of equal
    ones the first, and stand in falling order. A NaN is not chosen, and counts nowhere. Where fewer
    than top_k experts may be chosen, the rest are -1 with weight 0.

    Parameters
    ----------
    logits : tensor [tokens, experts], float32, bfloat16 or float16
        1 to 512 experts.
    experts : tensor [tokens, top_k], int32
        Written, for `route`; top_k from 1 to 32, and at most experts.
    weights : tensor [tokens, top_k], float32
        Written, for `combine`: s of each expert.
    bias : tensor [experts], float32, optional
        For the choice alone: weights do not have it.
    scores : {"softmax", "sigmoid"}
    renormalize : bool
        Divide a token's weights by their sum + 1e-20.
    scale : float
        Weights are multiplied by it, last of all. Finite, above 0.
    groups : int
        Experts are so many groups of neighbours, all of one size.
    top_groups : int
        Only experts of so many groups, those of the largest scores, may be chosen. They have top_k
        experts at least.
    group_score : {"max", "top2_sum"}
        The largest s + bias of a group's experts, or the sum of the two largest.

    Raises
    ------
    ValueError
        A word of `scores` or `group_score` does not exist. What does not fit together ends the run
        with InvalidArgument.
    """
    logits_, experts_, weights_ = as_tensor(logits), as_tensor(experts), as_tensor(weights)
    bias_ = None if bias is None else as_tensor(bias)
    factor = words.number("scale", scale)
    message = pb.Choose(
        logits=logits_.message,
        bias=None if bias_ is None else bias_.message,
        experts=experts_.message,
        weights=weights_.message,
        scores=words.chosen("scores", scores, ROUTER_SCORES),  # type: ignore[arg-type]
        renormalize=renormalize,
        scale=None if factor == 1.0 else factor,
        groups=words.whole("groups", groups),
        top_groups=words.whole("top_groups", top_groups),
        group_score=words.chosen("group_score", group_score, GROUP_SCORES),  # type: ignore[arg-type]
    )
    return Op("choose", pb.Op(choose=message), (logits_, bias_, experts_, weights_))


def route(ids: TensorLike, offsets: TensorLike, rows: TensorLike, positions: TensorLike) -> Op:
    """Which row each choice of a router goes to: by expert, then by token, then by choice.

    Parameters
    ----------
    ids : tensor [tokens, top_k], int32
        Experts; -1 for none. One beyond them ends the run with InvalidArgument.
    offsets : tensor [experts + 1], int32
        Written: where each expert's rows start, for `grouped_matmul`.
    rows : tensor [tokens * top_k], int32
        Written: each row's token, for `quantize`; -1 behind the last.
    positions : tensor [tokens, top_k], int32
        Written: each choice's row, for `combine`; -1 without an expert.
    """
    return op_of("route", ids=ids, offsets=offsets, rows=rows, positions=positions)


def combine(src: TensorLike, positions: TensorLike, weights: TensorLike, dst: TensorLike) -> Op:
    """dst[t] = sum over j of weights[t, j] * src[positions[t, j]], in float32 and rounded once.

    Parameters
    ----------
    src : tensor [rows, n], float32, bfloat16 or float16
    positions : tensor [tokens, top_k], int32
        Rows of src; -1 is left out. Another number ends the run with InvalidArgument.
    weights : tensor [tokens, top_k], float32
    dst : tensor [tokens, n], float32, bfloat16 or float16
    """
    return op_of("combine", src=src, positions=positions, weights=weights, dst=dst)
