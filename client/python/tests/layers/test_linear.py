"""Linear, on the fake and by hand; what it computes is measured by the e2e tests."""

import contextlib
import threading

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd import native
from gemmd._layers import kept, linear_step
from gemmd._layers.rows import planned
from gemmd._wire import methods

from ..conftest import QUICK
from ..numerics import relative_error


@pytest.fixture(params=["plain", "sharing"])
def server(request, fake, sharing_fake):
    return fake if request.param == "plain" else sharing_fake


def test_batches_of_any_shape_are_multiplied_and_one_plan_a_size_is_kept(server, session, random):
    w, bias = random.standard_normal((24, 40), "f4"), random.standard_normal(24, "f4")
    with gemmd.Linear(session, w, bias=bias, quantize=None, activation="relu") as layer:
        for shape in [(40,), (3, 40), (2, 5, 40), (3, 40), (10, 40)]:
            x = random.standard_normal(shape, "f4")
            y = layer(x)
            exact = np.maximum(x.astype(np.float64) @ w.T.astype(np.float64) + bias, 0)
            assert y.shape == (*shape[:-1], 24)
            assert relative_error(y, exact) < 1e-5
            assert y.report
        assert server.count(methods.CREATE_PLAN) == 3  # of 1, 3 and 10 rows


def test_arrays_in_the_other_byte_order_are_taken(session, random):
    """As they come out of a big-endian file."""
    x, w = random.standard_normal((3, 40), "f4"), random.standard_normal((24, 40), "f4")
    wanted, swapped = session.matmul(x, w.T), x.astype(">f4")
    layer = gemmd.Linear(session, w.astype(">f4"), bias=np.zeros(24, ">f4"), quantize=None)
    calls = layer(swapped), session.matmul(swapped, w.astype(">f4").T), swapped @ layer.buffer.T
    for got in calls:
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(session.upload(swapped).download(), x)
    held = session.create_buffer(shape=x.shape, dtype="f32")
    (got,) = session.execute([gemmd.write(held, swapped), gemmd.read(held)]).outputs
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("dtype", ["i8", "e4m3"])
def test_a_result_that_no_layer_has_is_refused_before_the_weight_is_sent(session, random, dtype):
    with pytest.raises(ValueError, match="use one of float32, bfloat16, float16"):
        gemmd.Linear(session, random.standard_normal((8, 16), "f4"), out_dtype=dtype)
    assert not session.buffers()


def test_a_call_in_steady_state_is_one_call_to_the_server(server, session, random):
    layer = gemmd.Linear(session, random.standard_normal((16, 16), "f4"), quantize=None)
    x = random.standard_normal((4, 16), "f4")
    layer(x)
    before = len(server.calls)
    for _ in range(5):
        layer(x)
    assert [name for name, _ in server.calls[before:]] == [methods.RUN_PLAN] * 5


def test_the_first_to_come_makes_a_named_weight_and_all_others_find_it(client, server, random):
    w = random.standard_normal((8, 16), "f4")
    made = []

    def load():
        made.append(1)
        return w

    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(client.session()) for _ in range(3)]
        shared_by(sessions, load, w, random)
    assert len(made) == 1


def shared_by(sessions, load, w, random):
    layers_ = [gemmd.Linear(one, load, name="block/0", quantize=None) for one in sessions]
    assert len({one.buffer.buffer_id for one in layers_}) == 1  # the fake has one id a buffer
    x = random.standard_normal((2, 16), "f4")
    for layer in layers_:
        assert relative_error(layer(x), x.astype(np.float64) @ w.T) < 1e-5
    layers_[0].unpublish()
    with pytest.raises(gemmd.NotFound):
        gemmd.Linear(sessions[0], name="block/0")


def test_who_loses_the_race_to_publish_uses_the_winners(session, server, random, monkeypatch):
    w = random.standard_normal((8, 16), "f4")
    winner = gemmd.Linear(session, w, name="raced", quantize=None)
    find, late = session.find, [gemmd.NotFound("not yet")]

    def find_late(name):
        if late:
            raise late.pop()
        return find(name)

    monkeypatch.setattr(session, "find", find_late)
    deleted = server.count(methods.DELETE_BUFFERS)
    loser = gemmd.Linear(session, w, name="raced", quantize=None)
    assert loser.buffer.buffer_id == winner.buffer.buffer_id
    assert server.count(methods.DELETE_BUFFERS) == deleted + 1  # its own copy


def test_a_bias_may_be_a_list(session, random):
    w, x = random.standard_normal((3, 5), "f4"), random.standard_normal((2, 5), "f4")
    with gemmd.Linear(session, w, bias=[1.0, 2.0, 3.0], quantize=None) as layer:
        np.testing.assert_allclose(layer(x), x @ w.T + [1, 2, 3], atol=1e-5)
    with pytest.raises(ValueError, match=r"bias has shape \(2,\)"):
        gemmd.Linear(session, w, bias=[1.0, 2.0])


def test_a_bias_beside_a_published_weight_without_one_is_refused(server, session, random):
    w, bias = random.standard_normal((3, 5), "f4"), [1.0, 2.0, 3.0]
    for name, weight in (("by name", None), ("by weight", w)):  # the fake has one id a buffer
        gemmd.Linear(session, w, name=name, quantize=None)
        deleted = server.count(methods.DELETE_BUFFERS)
        with pytest.raises(gemmd.FailedPrecondition, match=f"{name} is published without") as told:
            gemmd.Linear(session, weight, bias=bias, name=name, quantize=None)
        assert told.value.reason == "OTHER_WEIGHT"
        assert server.count(methods.DELETE_BUFFERS) == deleted + 1  # what was found is let go
    full = gemmd.Linear(session, w, bias=bias, name="full", quantize=None)
    again = gemmd.Linear(session, name="full", bias=bias)
    assert again.buffer.buffer_id == full.buffer.buffer_id


def test_a_name_of_something_else_is_refused(server, session):
    session.create_buffer(shape=(4, 4), dtype="f32").publish("other")
    held = server.count(methods.DELETE_BUFFERS)
    with pytest.raises(gemmd.FailedPrecondition, match=r"not made by gemmd\.Linear"):
        gemmd.Linear(session, name="other")
    assert server.count(methods.DELETE_BUFFERS) == held + 1  # what was found is let go


def test_threads_side_by_side_get_each_its_own_result(session, random):
    w = random.standard_normal((16, 32), "f4")
    layer = gemmd.Linear(session, w, quantize=None)
    inputs = [random.standard_normal((m, 32), "f4") for m in (1, 2, 3, 2) for _ in range(5)]
    results = [None] * len(inputs)

    def work(which):
        for i in range(which, len(inputs), 4):
            results[i] = layer(inputs[i])

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for x, y in zip(inputs, results, strict=True):
        assert relative_error(y, x.astype(np.float64) @ w.T) < 1e-5


def test_a_larger_batch_takes_the_place_of_a_smaller_ones_memory(session, random):
    w = random.standard_normal((512, 512), "f4")
    layer = gemmd.Linear(session, w, quantize=None)
    for m in (1, 2000, 1):
        x = random.standard_normal((m, 512), "f4")
        assert relative_error(layer(x), x.astype(np.float64) @ w.T) < 1e-5
    assert sum(one.label == "activations" for one in session.buffers()) == 2


def test_closing_leaves_nothing_of_it(session, random):
    before = len(session.buffers())
    layer = gemmd.Linear(session, random.standard_normal((8, 8), "f4"), quantize=None)
    layer(np.ones((2, 8), "f4"))
    layer.close()
    layer.close()
    assert len(session.buffers()) == before


@pytest.mark.parametrize(
    "options, says",
    [
        ({"weight": np.zeros(4, "f4")}, r"\[n, k\]"),
        ({"weight": np.zeros((4, 4), "f4"), "bias": np.zeros(3, "f4")}, "bias"),
        ({"weight": np.zeros((4, 4), "f4"), "scales": np.zeros((1, 1), "f4")}, "scales"),
        ({"weight": np.zeros((4, 4), gemmd.float8_e4m3fn)}, "needs them"),
        (
            {"weight": np.zeros((4, 4), gemmd.float8_e4m3fn), "scales": np.zeros((2, 1), "f4")},
            r"\(1, 1\)",
        ),
        ({"weight": np.zeros((4, 4), "f4"), "quantize": "int4"}, "int4"),
        ({}, "needed"),
    ],
    ids=["vector", "bias", "scales", "no scales", "scales shape", "quantize", "nothing"],
)
def test_weights_that_do_not_fit_are_refused(session, options, says):
    before = len(session.buffers())
    with pytest.raises(ValueError, match=says):
        gemmd.Linear(session, **options)
    assert len(session.buffers()) == before


def test_an_x_that_does_not_fit_is_refused(session):
    layer = gemmd.Linear(session, np.ones((4, 8), "f4"), quantize=None)
    for bad in (np.ones((2, 7), "f4"), np.ones((0, 7), "f4"), np.float32(3)):
        with pytest.raises(ValueError):
            layer(bad)


@pytest.mark.parametrize("options", [{}, {"out_dtype": "bf16"}, {"split": "columns"}])
def test_x_without_a_row_gives_a_result_without_one_and_no_call(server, session, options):
    layer = gemmd.Linear(session, np.ones((4, 8), "f4"), quantize=None, **options)
    calls = len(server.calls)
    for shape in [(0, 8), (3, 0, 8)]:
        y = layer(np.ones(shape, "f4"))
        assert y.shape == (*shape[:-1], 4) and not y.report
        assert y.dtype == gemmd.as_dtype(options.get("out_dtype", "f32"))
    assert len(server.calls) == calls
    with pytest.raises(TypeError, match="x has dtype int64"):
        layer(np.ones((0, 8), np.int64))


def step(m):
    weights = linear_step.Weights(256, 384, gemmd.float8_e4m3fn, True)
    return linear_step.Step(weights, m, gemmd.bfloat16, gemmd.bfloat16, "none", "inline")


def test_pieces_do_not_overlap_and_are_aligned():
    weights = step(1).weights
    assert weights.scales_at >= 256 * 384 and weights.bias_at >= weights.scales_at + 2 * 3 * 4
    assert weights.size_bytes >= weights.bias_at + 4 * 256
    for m in (1, 7, 64, 129):
        one = step(m)
        assert one.d_at >= m * 384 * 2 and one.io_bytes >= one.d_at + m * 256 * 2
        assert one.scratch_bytes >= m * 384 + (m + 3) // 4 * 4 * 3 * 4  # padded columns
        assert {one.d_at % 256, weights.scales_at % 256} == {0}


@pytest.mark.parametrize("m", [1, 6, 64])
def test_scales_of_activations_lie_along_the_rows_where_gpus_read_them(server, session, random, m):
    w, x = random.standard_normal((40, 300), "f4"), random.standard_normal((m, 300), "f4")
    with gemmd.Linear(session, w) as layer:
        assert 0.005 < relative_error(layer(x), x @ w.T.astype(np.float64)) < 0.06
    plan = next(request for name, request in server.calls if name == methods.CREATE_PLAN)
    written = next(op.quantize for op in plan.ops if op.HasField("quantize")).scales
    read = next(op.matmul for op in plan.ops if op.HasField("matmul")).a.scales
    assert written == read
    rows = planned(m)
    assert (list(read.shape), list(read.strides)) == ([rows, 3], [1, (rows + 3) // 4 * 4])
    assert read.offset_bytes % 16 == 0


def test_plans_long_unused_are_given_up_but_none_in_use():
    plans = kept.Kept()
    plans.add(step(1), "first")  # in use to the end
    for m in range(2, kept.MAX_PLANS + 1):
        assert plans.add(step(m), str(m)) is None
        plans.give(step(m))
    assert plans.take(step(2)) == "2"
    plans.give(step(2))
    assert plans.add(step(1000), "new") == "3"
    assert plans.take(step(3)) is None and plans.take(step(1)) == "first"
    assert len(plans.clear()) == kept.MAX_PLANS


def test_the_asyncio_one_does_the_same(server, random):
    import asyncio

    w, bias = random.standard_normal((24, 40), "f4"), random.standard_normal(24, "f4")
    inputs = [random.standard_normal((m, 40), "f4") for m in (1, 3, 3, 600)]

    async def main():
        client = gemmd.aio.Client(server.target, timeout_s=20, retry=QUICK)
        async with client, client.session() as session:
            make = gemmd.aio.Linear.create
            async with await make(session, w, bias=bias, quantize=None, name="aio/w") as layer:
                other = await make(session, name="aio/w")
                got = await asyncio.gather(*(layer(x) for x in inputs))
                got.append(await other(inputs[0]))
                await layer.unpublish()
                return got

    results = asyncio.run(main())
    for x, y in zip([*inputs, inputs[0]], results, strict=True):
        assert relative_error(y, x.astype(np.float64) @ w.T + bias) < 1e-5
    assert server.count(methods.CREATE_PLAN) == 4  # 1, 3 and 600 rows, and one of the other's


def test_a_layer_refuses_integers_and_warns_of_float64_once(session, random):
    w = random.standard_normal((8, 16), "f4")
    whole = np.ones((8, 16), np.int64)
    for weight, bias in ((whole, None), (w, whole[:, 0])):
        name = "weight" if bias is None else "bias"
        with pytest.raises(TypeError, match=f"{name} has dtype int64"):
            gemmd.Linear(session, weight, bias=bias, quantize=None)
    with pytest.warns(gemmd.PrecisionWarning, match="weight, bias: float64") as caught:
        layer = gemmd.Linear(session, w.astype("f8"), bias=np.zeros(8), quantize=None)
    assert [one.filename for one in caught] == [__file__]
    assert layer.weights.dtype == gemmd.float32
    with pytest.raises(TypeError, match="x has dtype int64"):
        layer(whole[:2])
    with pytest.raises(TypeError, match="x has dtype int8"):
        layer(whole[:2].astype(np.int8))
    with pytest.warns(gemmd.PrecisionWarning, match="x: float64"):
        layer(random.standard_normal((2, 16)))


@pytest.mark.parametrize("value", [None, object(), {"rows": 3}, [[1.0, None]]])
def test_what_is_no_array_is_refused_as_such(session, value):
    layer = gemmd.Linear(session, np.eye(8, dtype="f4"), quantize=None)
    for call in (layer, session.upload):
        with pytest.raises(TypeError, match="is no array of numbers"):
            call(value)


def test_gpu_memory_of_another_package_says_how_it_is_handed_over(session):
    class Foreign:
        __cuda_array_interface__ = {"shape": (1, 8), "typestr": "<f4", "data": (0, False)}

    with pytest.raises(TypeError, match="torch.as_tensor"):
        session.upload(Foreign())


@pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())
def test_more_layers_than_slots_give_each_other_room(arming_fake, random):
    """The fake has 64 slots."""
    with gemmd.Client(arming_fake.target, timeout_s=20, retry=QUICK) as client:
        session = client.session()
        weights = [random.standard_normal((8, 16), "f4") for _ in range(80)]
        layers = [gemmd.Linear(session, w, quantize=None) for w in weights]
        for rows in (1, 3, 1):
            x = random.standard_normal((rows, 16), "f4")
            for w, layer in zip(weights, layers, strict=True):
                y = layer(x)
                assert y.report.path == "armed"
                np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-4)
        session.close()
