"""choose against the fake: what it sends, and the fake's answers against a choice by hand."""

import numpy as np
import pytest

import gemmd
from gemmd.v1 import types_pb2 as pb


def by_hand(logits, top_k, *, bias=None, scores="softmax", renormalize=True, scale=1.0,
            groups=1, top_groups=1, group_score="max"):  # fmt: skip
    """One token in float64: its experts and weights."""
    x = np.asarray(logits, np.float64)
    there = ~np.isnan(x)
    if scores == "softmax":
        m = x[there].max() if there.any() else 0.0
        e = np.array([1.0 if v == m else np.exp(v - m) for v in x])
        s = e / e[there].sum()
    else:
        s = 1 / (1 + np.exp(-x))
    c = s if bias is None else s + bias
    may = [e for e in range(len(x)) if not np.isnan(c[e])]
    size = len(x) // groups
    if groups > 1:
        of_group = {}
        for e in may:
            of_group.setdefault(e // size, []).append(c[e])
        count = 1 if group_score == "max" else 2
        total = {g: sum(sorted(of, reverse=True)[:count]) for g, of in of_group.items()}
        kept = sorted(total, key=lambda g: (-total[g], g))[:top_groups]
        may = [e for e in may if e // size in kept]
    taken = sorted(may, key=lambda e: (-c[e], e))[:top_k]
    shares = s[taken] / (s[taken].sum() + 1e-20) if renormalize else s[taken]
    missing = top_k - len(taken)
    return taken + [-1] * missing, list(shares * scale) + [0.0] * missing


@pytest.fixture
def chosen(session):
    """Experts and weights as a program of choose leaves them."""

    def run(logits, top_k, *, bias=None, **options):
        tokens = len(logits)
        experts = session.create_buffer(shape=(tokens, top_k), dtype="i32")
        weights = session.create_buffer(shape=(tokens, top_k), dtype="f32")
        if bias is not None:
            bias = session.upload(np.asarray(bias, "f4"))
        op = gemmd.choose(session.upload(logits), experts, weights, bias=bias, **options)
        return session.execute([op, gemmd.read(experts), gemmd.read(weights)]).outputs

    return run


CASES = {
    "softmax": {},
    "raw": {"renormalize": False},
    "sigmoid": {"scores": "sigmoid", "scale": 2.5},
    "biased": {"scores": "sigmoid", "biased": True},
    "groups": {"groups": 4, "top_groups": 2},
    "sums": {"groups": 4, "top_groups": 2, "group_score": "top2_sum", "biased": True},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["f4", gemmd.bfloat16, gemmd.float16], ids=str)
def test_the_largest_scores_are_chosen(chosen, random, case, dtype):
    options = dict(CASES[case])
    bias = random.standard_normal(24).astype("f4") / 4 if options.pop("biased", False) else None
    logits = random.standard_normal((9, 24), "f4").astype(dtype)
    experts, weights = chosen(logits, 5, bias=bias, **options)
    for t, row in enumerate(logits.astype("f4")):
        wanted, shares = by_hand(row, 5, bias=bias, **options)
        assert list(experts[t]) == wanted
        np.testing.assert_allclose(weights[t], shares, rtol=1e-5)


def test_a_bias_moves_the_choice_and_not_the_weights(chosen):
    logits = np.array([[0.0, 1.0, 2.0]], "f4")
    experts, weights = chosen(logits, 1, bias=[9, 0, 0], scores="sigmoid", renormalize=False)
    assert experts.tolist() == [[0]]
    np.testing.assert_allclose(weights, [[0.5]])


def test_equal_scores_go_to_the_first_and_nan_to_nobody(chosen):
    nan, infinity = np.nan, np.inf
    logits = np.array(
        [[1, 1, 1, 1], [nan, 2, nan, 2], [nan] * 4, [-infinity] * 4, [infinity, 0, infinity, 0]],
        "f4",
    )
    experts, weights = chosen(logits, 3)
    assert experts.tolist() == [[0, 1, 2], [1, 3, -1], [-1] * 3, [0, 1, 2], [0, 2, 1]]
    third = [1 / 3] * 3
    np.testing.assert_allclose(weights, [third, [0.5, 0.5, 0], [0] * 3, third, [0.5, 0.5, 0]])


def test_a_choice_goes_on_to_route(chosen, session, random):
    logits = session.upload(random.standard_normal((6, 5), "f4"))
    shapes = {"experts": (6, 2), "offsets": (6,), "rows": (12,), "positions": (6, 2)}
    i32 = {name: session.create_buffer(shape=of, dtype="i32") for name, of in shapes.items()}
    weights = session.create_buffer(shape=(6, 2), dtype="f32")
    offsets = session.execute([
        gemmd.choose(logits, i32["experts"], weights),
        gemmd.route(i32["experts"], i32["offsets"], i32["rows"], i32["positions"]),
        gemmd.read(i32["offsets"]),
    ]).outputs[0]  # fmt: skip
    assert offsets[0] == 0 and offsets[-1] == 12


def test_what_is_not_said_is_not_sent(session):
    def message(**options):
        of = {name: session.create_buffer(shape=(2, n), dtype=dtype) for name, n, dtype in (
            ("logits", 8, "f32"), ("experts", 2, "i32"), ("weights", 2, "f32"))}  # fmt: skip
        return gemmd.choose(**of, **options).message.choose

    plain = message()
    assert plain.renormalize and not plain.HasField("scale") and not plain.HasField("bias")
    assert plain.scores == pb.ROUTER_SCORES_SOFTMAX and plain.group_score == pb.GROUP_SCORE_MAX
    full = message(scores="sigmoid", renormalize=False, scale=2.5, groups=4, top_groups=2,
                   group_score="top2_sum")  # fmt: skip
    assert not full.renormalize and full.scale == 2.5
    assert (full.groups, full.top_groups) == (4, 2)
    assert full.scores == pb.ROUTER_SCORES_SIGMOID
    assert full.group_score == pb.GROUP_SCORE_TOP2_SUM
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        message(scores="soft")
    with pytest.raises(ValueError, match="group_score 'sum' does not exist"):
        message(group_score="sum")
    with pytest.raises(TypeError, match="scale has type str"):
        message(scale="2")
    with pytest.raises(TypeError, match=r"groups=1\.5 is no whole number"):
        message(groups=1.5)


def test_what_does_not_fit_together_is_refused(chosen):
    with pytest.raises(gemmd.InvalidArgument, match="top_k=5"):
        chosen(np.zeros((2, 4), "f4"), 5)
    with pytest.raises(gemmd.InvalidArgument, match="groups=3"):
        chosen(np.zeros((2, 4), "f4"), 1, groups=3)
