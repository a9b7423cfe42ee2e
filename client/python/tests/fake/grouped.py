"""The fake's ops of experts: as plain as numpy allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gemmd.v1 import types_pb2 as pb

if TYPE_CHECKING:
    from .machine import Machine


def _ranked(values: np.ndarray, count: int) -> np.ndarray:
    """Places of the largest along the last axis, of equal ones the first; -1 where NaN is left."""
    last = np.where(np.isnan(values), np.inf, -values)
    # A NaN comes behind -inf, which is as large here.
    order = np.lexsort((last, np.isnan(values)), axis=-1)[..., :count]
    return np.where(np.isnan(np.take_along_axis(values, order, -1)), -1, order)


def _in_top_groups(c: np.ndarray, op: pb.Choose) -> np.ndarray:
    """c, with NaN for experts of groups that may not be chosen from."""
    tokens, experts = c.shape
    by_group = c.reshape(tokens, op.groups, experts // op.groups)
    falling = -np.sort(-by_group, axis=-1)  # NaN behind all others
    of_group = falling[..., 0]
    if op.group_score == pb.GROUP_SCORE_TOP2_SUM:
        second = falling[..., 1]
        of_group = of_group + np.where(np.isnan(second), 0, second)
    taken = _ranked(of_group, op.top_groups or 1)
    kept = (taken[..., None] == np.arange(op.groups)).any(axis=1)
    return np.where(kept[..., None], by_group, np.nan).reshape(c.shape)


def choose(machine: Machine, op: pb.Choose) -> None:
    from .machine import Refused

    logits = machine.view(op.logits).astype(np.float32)
    chosen, weights = machine.view(op.experts), machine.view(op.weights)
    experts, top_k = logits.shape[1], chosen.shape[1]
    if not 1 <= top_k <= min(experts, 32):
        raise Refused("INVALID_ARGUMENT", f"top_k={top_k} of {experts} experts", "INVALID")
    if experts % (op.groups or 1) or (op.top_groups or 1) > (op.groups or 1):
        raise Refused("INVALID_ARGUMENT", f"groups={op.groups} of {experts} experts", "INVALID")
    with np.errstate(over="ignore", invalid="ignore"):
        if op.scores == pb.ROUTER_SCORES_SIGMOID:
            s = 1 / (1 + np.exp(-logits))
        else:
            m = np.fmax.reduce(logits, axis=1, keepdims=True)
            e = np.where(logits == m, np.float32(1), np.exp(logits - m))
            s = e / np.nansum(e, axis=1, keepdims=True)
    c = s + machine.view(op.bias) if op.HasField("bias") else s
    if op.groups > 1:
        c = _in_top_groups(c, op)
    chosen[...] = _ranked(c, top_k)
    taken = np.where(chosen < 0, 0, np.take_along_axis(s, np.maximum(chosen, 0), 1))
    if op.renormalize:
        taken = taken / (taken.sum(axis=1, keepdims=True) + np.float32(1e-20))
    weights[...] = taken * (op.scale if op.HasField("scale") else 1.0)


def route(machine: Machine, op: pb.Route) -> None:
    from .machine import Refused

    ids, offsets = machine.view(op.ids), machine.view(op.offsets)
    experts = len(offsets) - 1
    wrong = np.argwhere((ids < -1) | (ids >= experts))
    if len(wrong):
        raise Refused("INVALID_ARGUMENT", f"ids{list(wrong[0])} is no expert", "INVALID")
    flat = ids.reshape(-1)
    order = np.argsort(np.where(flat < 0, experts, flat), kind="stable")
    rows, positions = np.full(flat.size, -1, np.int32), np.full(flat.size, -1, np.int32)
    taken = order[: (flat >= 0).sum()]
    rows[: taken.size] = taken // ids.shape[1]
    positions[taken] = np.arange(taken.size)
    offsets[...] = np.searchsorted(flat[taken], np.arange(experts + 1))
    machine.view(op.rows)[...] = rows
    machine.view(op.positions)[...] = positions.reshape(ids.shape)


def _spans(machine: Machine, op: pb.GroupedMatmul, groups: int) -> list[tuple[int, int]]:
    """First row and end of each group, by OFFSETS: what the client's layers use."""
    assert op.layout == pb.GROUP_LAYOUT_OFFSETS
    numbers = machine.view(op.groups)
    return [(int(numbers[g]), int(numbers[g + 1])) for g in range(groups)]


def grouped_matmul(machine: Machine, op: pb.GroupedMatmul) -> None:
    from .machine import activated, gated

    assert not op.gate.alone, "groups have an activation instead"
    a = machine.operand(op.a)
    b = [machine.operand(one) for one in op.weights] or machine.operand(op.b)
    alpha = op.alpha if op.HasField("alpha") else 1.0
    d = machine.view(op.d)
    out = np.zeros((len(a), d.shape[-1]))
    for g, (first, end) in enumerate(_spans(machine, op, len(b))):
        product = alpha * (a[first:end] @ b[g].T)
        if op.HasField("bias"):
            product = product + machine.view(op.bias)[g]
        product = activated(op.activation, product)
        out[first:end] = gated(product, op.gate) if op.HasField("gate") else product
    if op.HasField("d_scales"):
        granularity = pb.SCALE_GRANULARITY_BLOCK_1X128
        return machine.store_quantized(out, op.d, op.d_scales, granularity)
    d[...] = out.astype(d.dtype)


def k_grouped_matmul(machine: Machine, op: pb.KGroupedMatmul) -> None:
    a, b, d = machine.operand(op.a), machine.operand(op.b), machine.view(op.d)
    numbers, end = [int(x) for x in machine.view(op.groups)], 0
    step = op.alignment or 1
    for g in range(len(d)):
        if op.layout == pb.GROUP_LAYOUT_OFFSETS:
            first, end = numbers[g], numbers[g + 1]
        else:
            first, end = -(-end // step) * step if numbers[g] != end else end, numbers[g]
        alpha = op.alpha if op.HasField("alpha") else 1.0
        out = alpha * (a[:, first:end] @ b[:, first:end].T)
        if op.beta:
            out = out + op.beta * machine.view(op.c)[g].astype(np.float64)
        d[g] = out.astype(d.dtype)


def combine(machine: Machine, op: pb.Combine) -> None:
    src = machine.view(op.src).astype(np.float64)
    positions, weights = machine.view(op.positions), machine.view(op.weights)
    dst = machine.view(op.dst)
    factors = np.where(positions < 0, 0, weights.astype(np.float64))
    dst[...] = np.einsum("tj,tjn->tn", factors, src[positions]).astype(dst.dtype)
