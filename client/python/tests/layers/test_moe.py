"""MoE against the fake: experts of a layer in one program, and the ops that it is made of."""

import numpy as np
import pytest

import gemmd

from ..numerics import relative_error

EXPERTS, HIDDEN, INNER, TOP = 5, 48, 24, 2


def exact(x, experts, shares, gate_up, down):
    y = np.zeros((len(x), down.shape[1]))
    for t, row in enumerate(x.astype(np.float64)):
        for e, share in zip(experts[t], shares[t], strict=True):
            if e < 0:
                continue
            gate, up = np.split(gate_up[e] @ row, 2)
            y[t] += share * (down[e] @ (gate / (1 + np.exp(-gate)) * up))
    return y


@pytest.fixture
def weights(random):
    gate_up = random.standard_normal((EXPERTS, 2 * INNER, HIDDEN), "f4") / 7
    return gate_up, random.standard_normal((EXPERTS, HIDDEN, INNER), "f4") / 5


@pytest.fixture
def routed(random):
    def make(tokens):
        order = np.argsort(random.random((tokens, EXPERTS)), 1)[:, :TOP]
        return order, random.random((tokens, TOP), "f4")

    return make


@pytest.mark.parametrize("dtype", ["f4", gemmd.bfloat16])
def test_tokens_of_any_number_go_through_their_experts(session, weights, routed, random, dtype):
    with gemmd.MoE(session, *weights, top_k=TOP) as moe:
        for tokens in (1, 7, 20, 7):
            x = random.standard_normal((tokens, HIDDEN), "f4").astype(dtype)
            experts, shares = routed(tokens)
            y = moe(x, experts, shares)
            assert y.shape == (tokens, HIDDEN) and y.dtype == x.dtype
            assert 0.005 < relative_error(y, exact(x, experts, shares, *weights)) < 0.15
        assert "MoE(48 -> 5 x 24 -> 48, top 2, float8_e4m3fn, silu" in repr(moe)


@pytest.mark.parametrize("quantize", ["fp8-block", "fp8-row"])
def test_experts_may_have_no_ups(session, weights, routed, random, quantize):
    gate, down = weights[0][:, :INNER], weights[1]
    options = {"gate": gemmd.Gate("relu", alone=True), "quantize": quantize, "top_k": TOP}
    x, (experts, shares) = random.standard_normal((9, HIDDEN), "f4"), routed(9)
    wanted = np.zeros((len(x), HIDDEN))
    for t, row in enumerate(x):
        for e, share in zip(experts[t], shares[t], strict=True):
            wanted[t] += share * (down[e] @ np.maximum(gate[e] @ row, 0))
    with gemmd.MoE(session, gate, down, **options) as moe:
        assert 0.005 < relative_error(moe(x, experts, shares), wanted) < 0.15
    with pytest.raises(ValueError, match="must have 24 rows for each, as its gates are alone"):
        gemmd.MoE(session, weights[0], down, **options)
    with pytest.raises(ValueError, match="limit=7.0.* an activation, and nothing else"):
        gemmd.MoE(session, gate, down, gate=gemmd.Gate("relu", limit=7.0, alone=True))


@pytest.mark.parametrize("hidden", [1, 15, 50])
@pytest.mark.parametrize("dtype", [gemmd.bfloat16, gemmd.float16])
def test_rows_of_halves_may_have_any_length(session, routed, random, hidden, dtype):
    gate_up = random.standard_normal((EXPERTS, 2 * INNER, hidden), "f4") / hidden**0.5
    down = random.standard_normal((EXPERTS, 8, INNER), "f4") / 5
    moe = gemmd.MoE(session, gate_up, down, top_k=TOP)
    x, given = random.standard_normal((6, hidden), "f4").astype(dtype), routed(6)
    assert relative_error(moe(x, *given), exact(x, *given, gate_up, down)) < 0.25


def test_biases_are_added_to_each_product(session, weights, routed, random):
    def biased(x, experts, shares):
        y = np.zeros((len(x), HIDDEN))
        for t, row in enumerate(x):
            for e, share in zip(experts[t], shares[t], strict=True):
                gate, up = np.split(gate_up[e] @ row + first[e], 2)
                y[t] += share * (down[e] @ (gate / (1 + np.exp(-gate)) * up) + second[e])
        return y

    gate_up, down = weights
    first, second = (random.standard_normal((EXPERTS, n), "f4") for n in (2 * INNER, HIDDEN))
    biases = {"gate_up_bias": first, "down_bias": second}
    x, given = random.standard_normal((6, HIDDEN), "f4"), routed(6)
    moe = gemmd.MoE(session, *weights, **biases, top_k=TOP, name="biased")
    y = moe(x, *given)
    assert 0.002 < relative_error(y, biased(x, *given)) < 0.15
    np.testing.assert_array_equal(gemmd.MoE(session, name="biased", top_k=TOP)(x, *given), y)
    with pytest.raises(ValueError, match=r"bias has shape \(5, 24\)"):
        gemmd.MoE(session, *weights, gate_up_bias=first[:, :INNER], top_k=TOP)
    gemmd.MoE(session, *weights, top_k=TOP, name="plain")
    with pytest.raises(gemmd.FailedPrecondition, match="published without a bias"):
        gemmd.MoE(session, *weights, **biases, top_k=TOP, name="plain")


def test_a_token_may_have_as_many_experts_as_a_call_gives(session, weights, random):
    moe = gemmd.MoE(session, *weights)
    assert "-> 48, float8_e4m3fn" in repr(moe)
    x = random.standard_normal((4, HIDDEN), "f4")
    for top in (1, EXPERTS, 2):
        experts = np.argsort(random.random((4, EXPERTS)), 1)[:, :top]
        shares = random.random((4, top), "f4")
        assert relative_error(moe(x, experts, shares), exact(x, experts, shares, *weights)) < 0.15
    for bad, why in (
        (np.zeros((4, 6), int), "top_k=6 of 5"),
        (np.zeros((4, 0), int), "one at least"),
    ):
        with pytest.raises(ValueError, match=why):
            moe(x, bad, bad.astype("f4"))
    with pytest.raises(ValueError, match="without top_k"):
        moe.from_logits(x, np.zeros((4, EXPERTS), "f4"))


def test_no_token_gives_no_row(session, weights):
    moe = gemmd.MoE(session, *weights, top_k=TOP, out_dtype="bf16")
    x = np.ones((0, HIDDEN), "f4")
    for y in (
        moe(x, np.zeros((0, TOP), int), np.zeros((0, TOP), "f4")),
        moe.from_logits(x, np.zeros((0, EXPERTS), "f4")),
    ):
        assert y.shape == (0, HIDDEN) and y.dtype == gemmd.bfloat16 and not y.report


def test_forward_is_the_call_and_features_are_those_of_rows(session, weights, routed):
    with gemmd.MoE(session, *weights, top_k=TOP) as moe:
        x, (experts, shares) = np.ones((3, HIDDEN), "f4"), routed(3)
        y = moe.forward(x, experts, shares)
        np.testing.assert_array_equal(y, moe(x, experts, shares))
        assert (moe.in_features, moe.out_features) == (x.shape[1], y.shape[1])


def test_a_choice_of_no_expert_adds_nothing(session, weights, random):
    moe = gemmd.MoE(session, *weights, top_k=TOP)
    x = random.standard_normal((3, HIDDEN), "f4")
    experts = np.array([[0, -1], [-1, -1], [4, 4]])
    shares = np.ones((3, TOP), "f4")
    y = moe(x, experts, shares)
    assert relative_error(y, exact(x, experts, shares, *weights)) < 0.25  # of two rows alone
    assert not np.asarray(y)[1].any()


def test_logits_choose_the_largest_shares(session, weights, random):
    moe = gemmd.MoE(session, *weights, top_k=TOP)
    x = random.standard_normal((6, HIDDEN), "f4")
    logits = random.standard_normal((6, EXPERTS), "f4")
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    experts = np.argsort(-shares, 1)[:, :TOP]
    chosen = np.take_along_axis(shares, experts, 1)
    for renormalize in (True, False):
        factors = chosen / chosen.sum(1, keepdims=True) if renormalize else chosen
        y = moe.from_logits(x, logits, renormalize=renormalize)
        assert relative_error(y, exact(x, experts, factors, *weights)) < 0.15


def test_logits_choose_within_groups_by_scaled_sigmoids(session, weights, random):
    moe = gemmd.MoE(session, *weights, top_k=1)
    x = random.standard_normal((6, HIDDEN), "f4")
    logits = random.standard_normal((6, EXPERTS), "f4")
    experts = logits.argmax(1)[:, None]
    shares = 2.5 / (1 + np.exp(-np.take_along_axis(logits, experts, 1)))
    options = {"renormalize": False, "scores": "sigmoid", "scale": 2.5}
    y = moe.from_logits(x, logits, groups=EXPERTS, top_groups=2, **options)
    assert relative_error(y, exact(x, experts, shares, *weights)) < 0.15
    assert np.array_equal(y, moe.from_logits(x, logits, **options))
    with pytest.raises(ValueError, match="scores"):
        moe.from_logits(x, logits, scores="cosine")
    with pytest.raises(ValueError, match="one row a token"):
        moe.from_logits(x[:2], logits)


def test_more_experts_than_the_server_chooses_are_refused(session, random):
    gate_up = random.standard_normal((40, 16, 8), "f4")
    moe = gemmd.MoE(session, gate_up, random.standard_normal((40, 8, 8), "f4"), top_k=33)
    with pytest.raises(ValueError, match="chooses 32 at most: choose them, and call route"):
        moe.from_logits(np.zeros((2, 8), "f4"), np.zeros((2, 40), "f4"))


def test_calls_with_choices_and_with_logits_take_turns(session, weights, routed, random):
    moe = gemmd.MoE(session, *weights, top_k=TOP)
    x, given = random.standard_normal((3, HIDDEN), "f4"), routed(3)
    logits = random.standard_normal((3, EXPERTS), "f4")
    first = moe(x, *given), moe.from_logits(x, logits)
    again = moe(x, *given), moe.from_logits(x, logits)
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))


def test_workers_share_both_weights_by_one_name(session, weights, routed, random):
    first = gemmd.MoE(session, *weights, top_k=TOP, name="moe/0")
    second = gemmd.MoE(session, name="moe/0", top_k=TOP)
    x = random.standard_normal((4, HIDDEN), "f4")
    np.testing.assert_array_equal(first(x, *(given := routed(4))), second(x, *given))
    first.unpublish()
    with pytest.raises(gemmd.NotFound):
        gemmd.MoE(session, name="moe/0", top_k=TOP)


def test_what_does_not_fit_is_refused(session, weights, routed, random):
    gate_up, down = weights
    with pytest.raises(ValueError, match="gate_up must have 48 rows"):
        gemmd.MoE(session, gate_up[:, :40], down, top_k=TOP)
    with pytest.raises(ValueError, match=r"\[experts, n, k\] is needed"):
        gemmd.MoE(session, gate_up[0], down, top_k=TOP)
    moe = gemmd.MoE(session, gate_up, down, top_k=TOP)
    x = random.standard_normal((4, HIDDEN), "f4")
    experts, shares = routed(4)
    with pytest.raises(ValueError, match="x has shape"):
        moe(x[:, :40], experts, shares)
    with pytest.raises(ValueError, match="weights has shape"):
        moe(x, experts, shares[:, :1])
    for wrong in (shares[:, :1], np.zeros((4, EXPERTS + 1)), np.zeros(EXPERTS)):
        with pytest.raises(ValueError, match=r"logits has shape"):
            moe.from_logits(x, wrong)
    with pytest.raises(TypeError, match=r"top_k=2.0"):
        gemmd.MoE(session, gate_up, down, top_k=2.0)
    np.testing.assert_array_equal(  # as lists, and by name
        moe(x, weights=shares.tolist(), experts=experts.tolist()), moe(x, experts, shares)
    )
    for bad in (5, -2, 2**32):
        with pytest.raises(ValueError, match=f"experts has {bad}"):
            moe(x, np.full((4, TOP), bad), shares)


def test_ops_of_experts_are_encoded_with_every_field(session):
    scales = gemmd.Granularity.BLOCK_1X128
    h = session.operand((6, 128), scales)
    numbers = session.create_buffer(shape=(6,), dtype="i32").tensor()
    a = session.create_buffer(shape=(6, 64), dtype="bf16").tensor()
    b = session.create_buffer(shape=(5, 256, 64), dtype="bf16").tensor()
    gate = gemmd.Gate("gelu_tanh", period=1, limit=7.0, up_offset=1.0)
    op = gemmd.grouped_matmul(
        a, b, numbers, h, layout="row_ids", gate=gate, alpha=2.0, expected_rows=3, kernel="one"
    ).message.grouped_matmul
    assert (op.layout, op.alpha, op.expected_rows, op.kernel) == (2, 2.0, 3, "one")
    assert (op.gate.activation, op.gate.period, op.gate.limit, op.gate.up_offset) == (3, 1, 7, 1)
    assert op.d_scales.buffer_id and list(op.groups.shape) == [6]
    ends = gemmd.grouped_matmul(a, b, numbers[:5], a, layout="ends", alignment=128)
    assert ends.message.grouped_matmul.alignment == 128
    with pytest.raises(ValueError, match="layout 'rows' does not exist"):
        gemmd.grouped_matmul(a, b, numbers, a, layout="rows")
    with pytest.raises(ValueError, match="layout 'counts' does not tell columns"):
        gemmd.k_grouped_matmul(a, a, numbers, b, layout="counts")


def test_matrices_that_lie_apart_multiply_as_one_tensor(session, random):
    x, weights = random.standard_normal((6, 8), "f4"), random.standard_normal((3, 4, 8), "f4")
    a, numbers = session.upload(x), session.upload(np.array([0, 2, 2, 6], np.int32))
    together, apart = (session.create_buffer(shape=(6, 4), dtype="f4") for _ in range(2))
    matrices = [session.upload(one) for one in weights]
    session.execute(
        [
            gemmd.grouped_matmul(a, session.upload(weights), numbers, together),
            gemmd.grouped_matmul(a, matrices, numbers, apart),
        ]
    )
    wanted = np.concatenate([x[:2] @ weights[0].T, x[2:] @ weights[2].T])
    np.testing.assert_allclose(apart.download(), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(apart.download(), together.download())
    op = gemmd.grouped_matmul(a, tuple(matrices), numbers, apart).message.grouped_matmul
    assert not op.HasField("b") and len(op.weights) == 3
    assert op.weights[1].values.buffer_id == matrices[1].tensor().message.buffer_id
    with pytest.raises(ValueError, match="empty list"):
        gemmd.grouped_matmul(a, [], numbers, apart)


def test_counts_are_uploaded_and_never_multiplied(session):
    counts = np.array([3, 0, -1], np.int32)
    buffer = session.upload(counts)
    np.testing.assert_array_equal(buffer.download(), counts)
    with pytest.raises(TypeError, match="int32"):
        session.matmul(np.ones((2, 2), np.int32), np.ones((2, 2), np.int32))
