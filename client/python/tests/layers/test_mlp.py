"""MLP against the fake: gate_up, activation and down in one program."""

import numpy as np
import pytest

import gemmd
from gemmd._wire import methods

from ..fake.machine import Refused
from ..numerics import relative_error


def silu(x):
    return x / (1 + np.exp(-x))


def exact(x, gate, up, down):
    x = x.astype(np.float64)
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


@pytest.fixture
def weights(random):
    gate, up = (random.standard_normal((24, 40), "f4") / 6 for _ in range(2))
    return gate, up, random.standard_normal((16, 24), "f4") / 5


def test_rows_of_any_number_go_through_gate_and_down(session, weights, random):
    gate, up, down = weights
    with gemmd.MLP(session, np.concatenate([gate, up]), down, quantize=None) as mlp:
        for shape in [(40,), (3, 40), (2, 5, 40), (3, 40)]:
            x = random.standard_normal(shape, "f4")
            y = mlp(x)
            assert y.shape == (*shape[:-1], 16) and y.report.path in ("armed", "call")
            assert relative_error(y, exact(x, gate, up, down)) < 1e-5
        assert mlp(np.ones((2, 0, 40), "f4")).shape == (2, 0, 16)
        assert "MLP(40 -> 24 -> 16, float32, silu" in repr(mlp)


@pytest.mark.parametrize("method", [methods.CREATE_PLAN, methods.ARM_PLAN])
def test_a_new_row_count_takes_the_plan_of_another_at_the_servers_limit(
    session, fake, arming_fake, weights, random, method
):
    gate, up, down = weights
    mlp = gemmd.MLP(session, (gate, up), down, quantize=None)
    armed = not mlp.why_not_armed()
    server = arming_fake if armed else fake
    limit = ("RESOURCE_EXHAUSTED", "tenant default has 3 plans, limit 3", "PLAN_LIMIT")
    for rows in (1, 2, 4):
        mlp(random.standard_normal((rows, 40), "f4"))
    before = server.count(methods.DELETE_PLAN)
    server.fail(method, *limit, times=2)
    x = random.standard_normal((8, 40), "f4")
    assert relative_error(mlp(x), exact(x, gate, up, down)) < 1e-5
    if armed or method == methods.CREATE_PLAN:
        assert server.count(methods.DELETE_PLAN) == before + 2
    server.fail(methods.CREATE_PLAN, "RESOURCE_EXHAUSTED", "takes 3 min", "PROGRAM_LIMIT")
    with pytest.raises(gemmd.ResourceExhausted, match="takes 3 min"):
        mlp(random.standard_normal((16, 40), "f4"))
    calls = server.count(methods.CREATE_PLAN)
    assert relative_error(mlp(x), exact(x, gate, up, down)) < 1e-5
    assert server.count(methods.CREATE_PLAN) == calls


def test_a_layer_that_cannot_be_made_leaves_no_memory(session, fake, arming_fake, weights):
    gate, up, down = weights
    for server in (fake, arming_fake):
        server.fail("/gemmd.v1.BufferService/PublishBuffer", "INVALID_ARGUMENT", "name has ..")
    experts = np.stack([np.concatenate([gate, up])] * 2), np.stack([down] * 2)
    before = len(session.buffers())
    for make, error in (
        (lambda: gemmd.MLP(session, (gate, up), down[:, :20]), ValueError),
        (lambda: gemmd.MLP(session, (gate, up), np.ones((2, 2), "i8")), TypeError),
        (lambda: gemmd.MoE(session, experts[0], experts[1][:, :, :20], top_k=1), ValueError),
        (lambda: gemmd.MoE(session, *experts, top_k=3), ValueError),
        (lambda: gemmd.MoE(session, experts[0], top_k=1), ValueError),
        (lambda: gemmd.Linear(session, down, name="not/a name"), gemmd.InvalidArgument),
    ):
        with pytest.raises(error):
            make()
        assert len(session.buffers()) == before


def test_a_call_takes_what_it_needs_where_no_more_is_free_and_leaves_nothing_behind(
    session, fake, arming_fake, weights, random, monkeypatch
):
    gate, up, down = weights
    x = random.standard_normal((3, 40), "f4")
    for server in (fake, arming_fake):

        def create(request, create=server.create_buffer):
            if request.size_bytes > free[0]:
                raise Refused("RESOURCE_EXHAUSTED", "exceeds what is free", "DEVICE_MEMORY")
            free[0] -= request.size_bytes
            return create(request)

        monkeypatch.setattr(server, "create_buffer", create)
    free = [1 << 20]
    mlp = gemmd.MLP(session, (gate, up), down, quantize=None)
    before = len(session.buffers())
    free[0] = 768  # of x and the result, and not of what lies between
    with pytest.raises(gemmd.ResourceExhausted, match="exceeds what is free"):
        mlp(x)
    assert len(session.buffers()) == before
    free[0] = 100_000
    assert relative_error(mlp(x), exact(x, gate, up, down)) < 1e-5
    np.testing.assert_allclose(session.matmul(x, gate.T), x @ gate.T, rtol=1e-4, atol=1e-5)


def test_gate_and_up_may_come_apart_alternate_or_from_a_function(session, weights, random):
    gate, up, down = weights
    alternating = np.stack([gate, up], 1).reshape(48, 40)
    x = random.standard_normal((3, 40), "f4")
    for given, layout in (
        ((gate, up), "halves"),
        (lambda: (gate, up), "halves"),
        (alternating, "interleaved"),
    ):
        mlp = gemmd.MLP(session, given, down, quantize=None, layout=layout)
        assert relative_error(mlp(x), exact(x, gate, up, down)) < 1e-5


def test_an_fp8_mlp_quantises_what_goes_between_its_matmuls(session, weights, random):
    gate, up, down = weights
    mlp = gemmd.MLP(session, (gate, up), down)
    x = random.standard_normal((5, 40), "f4").astype(gemmd.bfloat16)
    y = mlp(x)
    assert y.dtype == gemmd.bfloat16
    assert 0.005 < relative_error(y, exact(x, gate, up, down)) < 0.15


def test_workers_share_both_weights_by_one_name(session, weights, random):
    gate, up, down = weights
    first = gemmd.MLP(session, (gate, up), down, name="mlp/0", quantize=None)
    second = gemmd.MLP(session, name="mlp/0")
    for one, other in zip(first.buffers, second.buffers, strict=True):
        assert one.buffer_id == other.buffer_id  # the fake has one id a buffer
    x = random.standard_normal((2, 40), "f4")
    np.testing.assert_array_equal(first(x), second(x))
    first.unpublish()
    with pytest.raises(gemmd.NotFound):
        gemmd.MLP(session, name="mlp/0")


def test_weights_that_do_not_fit_are_refused(session, weights):
    gate, _, down = weights
    with pytest.raises(ValueError, match="gate_up must have 48 rows"):
        gemmd.MLP(session, gate, down, quantize=None)
    for pair in ((gate[:-1], gate), (gate, gate, gate), ()):  # its halves would be others
        with pytest.raises(ValueError, match=r"two of the same \[i, k\]"):
            gemmd.MLP(session, pair, down, quantize=None)
    with pytest.raises(ValueError, match=r"layout 'rows'.*halves, interleaved"):
        gemmd.MLP(session, gate, down, layout="rows")
    with pytest.raises(ValueError, match="last extent must be k=40"):
        gemmd.MLP(session, (gate, gate), down, quantize=None)(np.zeros((2, 41), "f4"))


def test_weights_that_do_not_fit_are_not_published(session, weights):
    gate, up, down = weights
    experts = np.stack([np.concatenate([gate, up])] * 2), np.stack([down] * 2)
    for make in (
        lambda: gemmd.MLP(session, (gate, up), down[:, :20], name="odd"),
        lambda: gemmd.MoE(session, experts[0], experts[1][:, :, :20], top_k=1, name="odd"),
        lambda: gemmd.MoE(session, *experts, top_k=3, name="odd"),
    ):
        with pytest.raises(ValueError):
            make()
        for part in ("gate_up", "down"):
            with pytest.raises(gemmd.NotFound):
                session.find(f"odd.{part}")


def test_fp8_weights_in_halves_gate_as_they_multiply(session, random):
    gate, up = (random.standard_normal((128, 256), "f4") / 16 for _ in range(2))
    down = random.standard_normal((40, 128), "f4") / 11
    x = random.standard_normal((5, 256), "f4")
    alternating = np.stack([gate, up], 1).reshape(256, 256)
    for options, ops in (
        ({}, ["matmul", "matmul"]),
        ({"gate_up_bias": np.zeros(256, "f4")}, ["matmul", "gated", "matmul"]),
        ({"layout": "interleaved"}, ["matmul", "gated", "matmul"]),
    ):
        given = alternating if "layout" in options else (gate, up)
        with gemmd.MLP(session, given, down, **options) as mlp:
            y = mlp(x)
            if y.report.path == "call":
                kinds = [op.op for op in y.report.ops]
                assert [kind for kind in kinds if kind in ("matmul", "gated")] == ops
            assert relative_error(y, exact(x, gate, up, down)) < 0.1
