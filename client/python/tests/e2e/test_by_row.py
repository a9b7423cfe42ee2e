"""FP8 weights with one scale a row on a real daemon, against float64 of what it holds."""

import time

import numpy as np
import pytest

import gemmd

from ..layers.test_by_row import KINDS, WIDTHS, error_of_rows, rounded, stored
from ..layers.test_moe_by_row import TOP, chosen, exact, experts_of
from ..test_checkpoint import file_text

pytestmark = pytest.mark.e2e
# Scales of another kind are 20 times as far, in every row.
NEAR = 2e-3


@pytest.fixture
def near_twice(client):
    """Of what is rounded to FP8 between two matmuls. A GPU's tensor cores add up with fewer bits, so
    that more of h is rounded to the number beside it.
    """
    on_gpu = client.devices()[0].name.startswith("cuda")
    return (6 if on_gpu else 2) * NEAR


@pytest.mark.parametrize("way", ["auto", "off"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_a_layer_by_row_is_what_float64_says(client, random, dtype, way):
    values, scales, w = stored(random, 200, 300, gemmd.bfloat16)
    bias = random.standard_normal(200, "f4")
    with client.session(shared_memory=way) as session:
        layer = gemmd.Linear(
            session, values, scales=scales.reshape(-1, 1), bias=bias, out_dtype="f32"
        )
        for shape in [(5, 300), (2, 33, 300), (5, 300)]:
            x = random.standard_normal(shape, "f4").astype(gemmd.as_dtype(dtype))
            y, rows = layer(x), x.reshape(-1, 300)
            assert error_of_rows(y.reshape(-1, 200), rounded(rows) @ w.T + bias) < NEAR
            assert error_of_rows(y.reshape(-1, 200), rounded(rows, 128) @ w.T + bias) > 5 * NEAR
            first = y.reshape(-1, 200)[0]  # small ones are what large ones leave of each other
            np.testing.assert_allclose(layer(rows[:1])[0], first, 1e-4, 1e-6 * np.abs(first).max())
            if y.report.path == "call":
                assert [op.op for op in y.report.ops] == ["write", "quantize", "matmul", "read"]


def test_batches_beyond_a_message_and_rows_of_zeros(client, random):
    values, scales, w = stored(random, 640, 1024)
    for way in ("auto", "off"):
        with client.session(shared_memory=way) as session:
            layer = gemmd.Linear(session, values, scales=scales)
            for m in (1500, 9):
                x = random.standard_normal((m, 1024), "f4")
                x[1] = 0
                y = np.asarray(layer(x))
                assert not y[1].any()
                some = [0, *range(2, 9), m - 1]
                assert error_of_rows(y[some], rounded(x[some]) @ w.T) < NEAR


def test_quantised_by_row_on_the_server(session, random):
    w = random.standard_normal((200, 300), "f4") * np.geomspace(1e-3, 1e3, 200, dtype="f4")[:, None]
    x = random.standard_normal((5, 300), "f4")
    layer = gemmd.Linear(session, w, quantize="fp8-row")
    assert error_of_rows(layer(x), rounded(x) @ rounded(w).T) < NEAR


@pytest.mark.parametrize("down", KINDS)
@pytest.mark.parametrize("gate_up", KINDS)
def test_an_mlp_of_either_kind(session, random, near_twice, gate_up, down):
    inner = 256
    up_values, up_scales, up = KINDS[gate_up](random, 2 * inner, 300)
    down_values, down_scales, low = KINDS[down](random, 200, inner)
    mlp = gemmd.MLP(
        session, up_values, down_values, gate_up_scales=up_scales, down_scales=down_scales
    )
    for m in (5, 70):
        x = random.standard_normal((m, 300), "f4")
        products = rounded(x, WIDTHS[gate_up]) @ up.T
        gate, top = products[:, :inner], products[:, inner:]
        with np.errstate(over="ignore"):
            h = gate / (1 + np.exp(-gate)) * top
        assert error_of_rows(mlp(x), rounded(h, WIDTHS[down]) @ low.T) < near_twice


@pytest.mark.parametrize("down", KINDS)
@pytest.mark.parametrize("gate_up", KINDS)
def test_experts_of_either_kind(session, random, near_twice, gate_up, down):
    inner = 144
    up_values, up_scales, up = experts_of(KINDS[gate_up], random, 2 * inner, 320)
    down_values, down_scales, low = experts_of(KINDS[down], random, 200, inner)
    moe = gemmd.MoE(
        session, up_values, down_values, gate_up_scales=up_scales, down_scales=down_scales,
        top_k=TOP, gate=gemmd.Gate("relu"),
    )  # fmt: skip
    for tokens in (3, 70, 700):
        x, given = random.standard_normal((tokens, 320), "f4"), chosen(random, tokens)
        wanted = exact(x, *given, up, low, (WIDTHS[gate_up], WIDTHS[down]))
        assert error_of_rows(moe(x, *given), wanted) < near_twice


def test_an_fp8_dynamic_checkpoint_is_loaded_once_and_used_by_name(client, random, tmp_path):
    values, scales, w = stored(random, 96, 160, gemmd.bfloat16)
    plain = random.standard_normal((48, 96), "f4")
    tensors = {
        "up.weight": ("F8_E4M3", [96, 160], values.tobytes()),
        "up.weight_scale": ("BF16", [96, 1], scales.tobytes()),
        "head.weight": ("F32", [48, 96], plain.tobytes()),
    }
    (tmp_path / "model.safetensors").write_bytes(file_text(tensors))
    prefix = f"by-row-{time.time_ns()}"
    x = random.standard_normal((5, 160), "f4")
    with client.session() as session:
        first = session.load(tmp_path, prefix=prefix, quantize="fp8-row")
        assert (first.moved, sorted(first)) == (2, ["head.weight", "up.weight"])
        again = session.load(tmp_path, prefix=prefix, quantize="fp8-row")
        assert (again.moved, again.moved_bytes, again.found) == (0, 0, 2)
        h = gemmd.Linear(session, name=f"{prefix}/up.weight")(x)
        assert error_of_rows(h, rounded(x) @ w.T) < NEAR
        y = gemmd.Linear(session, name=f"{prefix}/head.weight")(np.asarray(h))
        assert error_of_rows(y, rounded(h) @ rounded(plain).T) < NEAR
        for name in first:
            session.unpublish(f"{prefix}/{name}")
