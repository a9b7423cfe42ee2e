"""Experts whose FP8 weights have one scale a row, against the fake and float64 of what it holds."""

import numpy as np
import pytest

import gemmd
from gemmd.ops import Granularity

from .test_by_row import KINDS, WIDTHS, blocks, error_of_rows, kinds, rounded, stored

EXPERTS, HIDDEN, INNER, N, TOP = 5, 160, 136, 72, 2
ROW = Granularity.PER_ROW


def experts_of(kind, random, n, k):
    """Values, scales and what they mean, of all experts."""
    made = [kind(random, n, k) for _ in range(EXPERTS)]
    return tuple(np.stack(part) for part in zip(*made, strict=True))


def chosen(random, tokens):
    experts = np.argsort(random.random((tokens, EXPERTS)), 1)[:, :TOP]
    experts[0, 1] = -1
    return experts, random.uniform(0.5, 1, (tokens, TOP)).astype("f4")


def exact(x, experts, shares, gate_up, down, widths=(None, None)):
    """The layer's sums, of activations rounded as they are: by row, or for so many columns."""
    y = np.zeros((len(x), down.shape[1]))
    sent = rounded(x, widths[0])
    for t, j in np.ndindex(experts.shape):
        e = experts[t, j]
        if e < 0:
            continue
        gate, up = np.split(gate_up[e] @ sent[t], 2)
        h = rounded((np.maximum(gate, 0) * up)[None], widths[1])[0]
        y[t] += shares[t, j] * (down[e] @ h)
    return y


@pytest.mark.parametrize("down", KINDS)
@pytest.mark.parametrize("gate_up", KINDS)
def test_the_weights_of_experts_may_differ_in_kind(server, session, random, gate_up, down):
    up_values, up_scales, up = experts_of(KINDS[gate_up], random, 2 * INNER, HIDDEN)
    down_values, down_scales, low = experts_of(KINDS[down], random, N, INNER)
    moe = gemmd.MoE(
        session, up_values, down_values, top_k=TOP, gate=gemmd.Gate("relu"),
        gate_up_scales=up_scales, down_scales=down_scales,
    )  # fmt: skip
    assert ("by row" in repr(moe)) == (gate_up == "row")
    for tokens in (1, 30):
        x, given = random.standard_normal((tokens, HIDDEN), "f4"), chosen(random, tokens)
        wanted = exact(x, *given, up, low, (WIDTHS[gate_up], WIDTHS[down]))
        # The products are rounded to float32 before they are quantised: some land elsewhere.
        assert error_of_rows(moe(x, *given), wanted) < 2e-3
        computed = [one for one in kinds(server) if one not in ("write", "read")]
        quantized = ["quantize"] if down == "row" else []
        product = ["route", "quantize", "grouped_matmul"]
        assert computed == [*product, *quantized, "grouped_matmul", "combine"]


@pytest.mark.parametrize("dtype", ["f4", gemmd.bfloat16])
@pytest.mark.parametrize("column", [False, True])
def test_scales_of_rows_come_as_checkpoints_have_them(session, random, column, dtype):
    up_values, up_scales, _ = experts_of(stored, random, 2 * INNER, HIDDEN)
    down_values, down_scales, _ = experts_of(stored, random, N, INNER)
    up_scales, down_scales = (one.astype(dtype) for one in (up_scales, down_scales))
    up = up_values.astype(np.float64) * up_scales.astype(np.float64)[..., None]
    low = down_values.astype(np.float64) * down_scales.astype(np.float64)[..., None]
    if column:
        up_scales, down_scales = up_scales[..., None], down_scales[..., None]
    moe = gemmd.MoE(
        session, up_values, down_values, top_k=TOP, gate=gemmd.Gate("relu"),
        gate_up_scales=up_scales, down_scales=down_scales,
    )  # fmt: skip
    assert moe.weights[0].by_row and moe.weights[1].granularity is ROW
    x, given = random.standard_normal((9, HIDDEN), "f4"), chosen(random, 9)
    assert error_of_rows(moe(x, *given), exact(x, *given, up, low)) < 2e-3
    np.testing.assert_array_equal(moe.buffers[1].download().view("u1"), down_values.view("u1"))


def test_experts_are_quantised_by_row_on_the_server_and_found_by_name(session, random):
    rows = np.geomspace(1e-3, 1e3, N, dtype="f4")[:, None]
    up = random.standard_normal((EXPERTS, 2 * INNER, HIDDEN), "f4")
    low = random.standard_normal((EXPERTS, N, INNER), "f4") * rows
    options = {"top_k": TOP, "gate": gemmd.Gate("relu"), "out_dtype": "f32"}
    made = gemmd.MoE(session, up, low, quantize="fp8-row", name="moe/row", **options)
    found = gemmd.MoE(session, name="moe/row", **options)
    assert found.weights == made.weights and found.weights[1].by_row
    # What clients know that have no scales by row: they refuse it instead of misreading it.
    assert found.buffers[0].label == "gemmd.MoE.row/1"
    x, given = random.standard_normal((12, HIDDEN), "f4"), chosen(random, 12)
    y = found(x, *given)
    np.testing.assert_array_equal(y, made(x, *given))
    kept_up, kept_low = (np.stack([rounded(one) for one in weight]) for weight in (up, low))
    # By column: its row of the weight has its own scale, however small.
    wanted = exact(x, *given, kept_up, kept_low)
    assert error_of_rows(np.asarray(y).T, wanted.T) < 1e-2


def test_a_layout_of_a_later_client_is_refused(session):
    for part, shape in (("gate_up", (2, 8, 4)), ("down", (2, 4, 4))):
        made = session.create_buffer(shape=shape, dtype="e4m3", label="gemmd.MoE.row/2")
        made.publish(f"later.{part}")
    with pytest.raises(gemmd.FailedPrecondition, match=r"not made by gemmd\.MoE"):
        gemmd.MoE(session, name="later", top_k=1)


def test_what_no_expert_has_is_refused_with_what_fits(session, random):
    values, _, _ = experts_of(blocks, random, 2 * INNER, HIDDEN)
    low = np.ones((EXPERTS, N, INNER), "f4")
    for shape in [(2 * INNER,), (EXPERTS, HIDDEN), (EXPERTS, 1, 2 * INNER), (EXPERTS, 2, 2)]:
        with pytest.raises(ValueError) as refused:
            gemmd.MoE(session, values, low, top_k=1, gate_up_scales=np.ones(shape, "f4"))
        rows = (EXPERTS, 2 * INNER)
        for said in (str(shape), f"({EXPERTS}, 3, 2)", str(rows), str((*rows, 1))):
            assert said in str(refused.value)
    with pytest.raises(ValueError, match="quantize"):
        gemmd.MoE(session, low, low, top_k=1, quantize="fp8-column")
