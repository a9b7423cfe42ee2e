"""Layers whose FP8 weights have one scale a row, against the fake and float64 of what it holds."""

import asyncio
import math
from itertools import pairwise

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd.ops import Granularity

from ..numerics import relative_error

E4M3, ROW = gemmd.float8_e4m3fn, Granularity.PER_ROW
N, K = 200, 300


def rounded(x, block=None):
    """x [m, k] as float8_e4m3fn has it with one scale a row, or for so many of its columns."""
    x = np.asarray(x, np.float64)
    parts = []
    for at in range(0, x.shape[1], block or x.shape[1]):
        part = x[:, at : at + (block or x.shape[1])]
        scales = (np.abs(part).max(axis=1, keepdims=True) / 448).astype("f4").astype(np.float64)
        scales[scales == 0] = 1
        parts.append((part / scales).astype(E4M3).astype(np.float64) * scales)
    return np.concatenate(parts, axis=1)


def stored(random, n, k, dtype="f4"):
    """A weight as FP8-dynamic checkpoints have it: values, scales, what they mean in float64."""
    values = (random.standard_normal((n, k)) * 50).astype(E4M3)
    scales = random.uniform(0.01, 1, n).astype(dtype)
    return values, scales, values.astype(np.float64) * scales.astype(np.float64)[:, None]


def blocks(random, n, k):
    """The same with scales of 128x128."""
    values = (random.standard_normal((n, k)) * 50).astype(E4M3)
    scales = random.uniform(0.01, 1, (-(-n // 128), -(-k // 128))).astype("f4")
    spread = scales.astype(np.float64).repeat(128, 0)[:n].repeat(128, 1)[:, :k]
    return values, scales, values.astype(np.float64) * spread


def error_of_rows(y, exact):
    """The median row's: a number within float32's rounding of the middle between two of E4M3 may
    become either, and is 2e-3 or more of its row.
    """
    pairs = zip(np.asarray(y), exact, strict=True)
    return np.median([relative_error(row, wanted) for row, wanted in pairs])


def kinds(server):
    """Of the ops of the plan that was made last."""
    return [op.WhichOneof("kind") for op in list(server.plans.values())[-1]]


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
@pytest.mark.parametrize("dtype", ["f4", gemmd.bfloat16])
def test_a_weight_comes_with_a_scale_for_each_row(server, session, random, shape, dtype):
    values, scales, w = stored(random, N, K, dtype)
    bias = random.standard_normal(N, "f4")
    with gemmd.Linear(session, values, scales=scales.reshape(shape), bias=bias) as layer:
        for m in (1, 7, 1):
            x = random.standard_normal((m, K), "f4")
            assert relative_error(layer(x), rounded(x) @ w.T + bias) < 1e-6
        assert "float8_e4m3fn by row" in repr(layer)
        program = next(iter(server.plans.values()))
        assert [op.quantize.granularity for op in program if op.HasField("quantize")] == [ROW]
        np.testing.assert_array_equal(layer.buffer.download().view("u1"), values.view("u1"))


def test_a_weight_is_quantised_by_row_on_the_server(session, random):
    w = random.standard_normal((N, K), "f4") * np.geomspace(1e-3, 1e3, N, dtype="f4")[:, None]
    x = random.standard_normal((5, K), "f4").astype(gemmd.bfloat16)
    layer = gemmd.Linear(session, w, quantize="fp8-row", activation="relu", out_dtype="f32")
    assert relative_error(layer(x), np.maximum(rounded(x) @ rounded(w).T, 0)) < 1e-6


def test_one_scale_stands_for_all_blocks(session, random):
    values = (random.standard_normal((N, K)) * 50).astype(E4M3)
    x = random.standard_normal((3, K), "f4")
    for one in (np.float32(0.5), np.full(1, 0.5, "f4"), np.full((1, 1), 0.5, gemmd.bfloat16)):
        layer = gemmd.Linear(session, values, scales=np.asarray(one))
        assert relative_error(layer(x), rounded(x, 128) @ values.astype(np.float64).T / 2) < 1e-6


@pytest.mark.parametrize("k", [3, K])
def test_of_a_single_row_a_single_scale_is_one_for_all_blocks(session, random, k):
    values, scales, w = stored(random, 1, k)
    layer = gemmd.Linear(session, values, scales=scales)
    assert not layer.weights.by_row
    x = random.standard_normal((3, k), "f4")
    assert relative_error(layer(x), rounded(x, 128) @ w.T) < 1e-6


@pytest.mark.parametrize("with_bias", [False, True])
def test_others_find_it_by_name_and_read_its_kind_from_the_label(session, random, with_bias):
    values, scales, _ = stored(random, N, K)
    bias = random.standard_normal(N, "f4") if with_bias else None
    made = gemmd.Linear(session, values, scales=scales, bias=bias, name="by/row")
    found = gemmd.Linear(session, name="by/row")
    assert found.weights == made.weights and found.weights.by_row
    assert found.buffer.label == "gemmd.Linear.row/1" + ("+bias" if with_bias else "")
    # What clients know that have no scales by row: they refuse it instead of misreading it.
    assert not found.buffer.label.startswith("gemmd.Linear/1")
    x = random.standard_normal((4, K), "f4")
    np.testing.assert_array_equal(found(x), made(x))


def test_a_layout_of_a_later_client_is_refused(session):
    for label in ("gemmd.Linear.row/2", "gemmd.Linear/12", "gemmd.Linear/1+other"):
        name = label.replace("+", "-")
        session.create_buffer(shape=(4, 4), dtype="e4m3", label=label).publish(name)
        with pytest.raises(gemmd.FailedPrecondition, match=r"not made by gemmd\.Linear"):
            gemmd.Linear(session, name=name)


def test_scales_of_another_shape_are_named_with_those_that_fit(session):
    values = np.ones((N, K), E4M3)
    for shape in [(K,), (1, N), (N, 2), (2, 2), (N, 1, 1)]:
        with pytest.raises(ValueError) as refused:
            gemmd.Linear(session, values, scales=np.ones(shape, "f4"))
        for said in (str(shape), "(2, 3)", f"({N},)", f"({N}, 1)"):
            assert said in str(refused.value)


KINDS = {"row": stored, "block": blocks}
WIDTHS = {"row": None, "block": 128}


@pytest.mark.parametrize("down", KINDS)
@pytest.mark.parametrize("gate_up", KINDS)
def test_the_weights_of_an_mlp_may_differ_in_kind(server, session, random, gate_up, down):
    inner = 256
    up_values, up_scales, up = KINDS[gate_up](random, 2 * inner, K)
    down_values, down_scales, low = KINDS[down](random, N, inner)
    mlp = gemmd.MLP(
        session, up_values, down_values, gate_up_scales=up_scales, down_scales=down_scales,
        activation="relu",
    )  # fmt: skip
    for m in (5, 40):
        x = random.standard_normal((m, K), "f4")
        products = rounded(x, WIDTHS[gate_up]) @ up.T
        h = np.maximum(products[:, :inner], 0) * products[:, inner:]
        exact = rounded(h, WIDTHS[down]) @ low.T
        # The products are rounded to float32 before they are quantised: some land elsewhere.
        assert error_of_rows(mlp(x), exact) < 2e-3
        fused = gate_up == down == "block"
        computed = [one for one in kinds(server) if one not in ("write", "read")]
        parts = [] if fused else ["gated", "quantize"] if down == "row" else ["gated"]
        assert computed == ["quantize", "matmul", *parts, "matmul"]


def test_an_mlp_quantises_by_row_and_is_found_by_its_name(session, random):
    weights = random.standard_normal((48, 40), "f4"), random.standard_normal((16, 24), "f4")
    mlp = gemmd.MLP(session, *weights, quantize="fp8-row", name="mlp", layout="interleaved")
    x = random.standard_normal((5, 40), "f4").astype(gemmd.bfloat16)
    found = gemmd.MLP(session, name="mlp", layout="interleaved")
    np.testing.assert_array_equal(found(x), mlp(x))
    assert "by row" in repr(mlp)
    products = x.astype(np.float64) @ weights[0].T.astype(np.float64)
    gate, up = products[:, ::2], products[:, 1::2]
    assert 0.005 < relative_error(mlp(x), gate / (1 + np.exp(-gate)) * up @ weights[1].T) < 0.15


@pytest.mark.parametrize("devices", [["cpu:1"], ["cpu:0", "cpu:1"], ["cpu:0", "cpu:1", "cpu:2"]])
@pytest.mark.parametrize("given", ["scales", "quantize"])
@pytest.mark.parametrize("split", ["columns", "rows"])
def test_parts_on_several_devices_have_their_rows_scales(session, random, split, given, devices):
    n, k = 456, 392  # parts of several sizes, the last ones ragged
    bias, x = random.standard_normal(n, "f4"), random.standard_normal((7, k), "f4")
    if given == "scales":
        values, scales, w = stored(random, n, k)
        options = {"scales": scales.reshape(n, 1)}
    else:
        values, options = random.standard_normal((n, k), "f4"), {"quantize": "fp8-row"}
        w = None
    with gemmd.Linear(session, values, bias=bias, split=split, devices=devices, **options) as layer:
        assert all(part.by_row for part in layer._split.parts)
        exact = bias.astype(np.float64)
        edges = np.cumsum([0, *(part.k for part in layer._split.parts)])
        if split == "columns":
            exact = exact + rounded(x) @ (rounded(values) if w is None else w).T
        else:  # each device has a slice of x, and quantises that
            for begin, end in pairwise(edges):
                part = rounded(values[:, begin:end]) if w is None else w[:, begin:end]
                exact = exact + rounded(x[:, begin:end]) @ part.T
        assert relative_error(layer(x), exact) < 1e-6


def test_a_part_of_one_row_is_multiplied_right(session, random):
    values, scales, w = stored(random, 129, K)
    x = random.standard_normal((3, K), "f4")
    devices = ["cpu:0", "cpu:1"]
    layer = gemmd.Linear(session, values, scales=scales, split="columns", devices=devices)
    y = np.asarray(layer(x), np.float64)
    assert relative_error(y[:, :128], rounded(x) @ w[:128].T) < 1e-6
    assert relative_error(y[:, 128:], x @ w[128:].T) < math.sqrt(K) * 0.01  # of x's rounding


def test_asyncio_has_it_too(server, random):
    values, scales, w = stored(random, N, K)
    x = random.standard_normal((4, K), "f4")

    async def call():
        async with gemmd.aio.Client(server.target) as client, client.session() as session:
            layer = await gemmd.aio.Linear.create(session, values, scales=scales)
            return await layer(x)

    assert relative_error(asyncio.run(call()), rounded(x) @ w.T) < 1e-6
