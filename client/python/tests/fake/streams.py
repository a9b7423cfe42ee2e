"""What a layer does with streams: order, memory, plans and errors of its calls. Run by on_fake_gpu.py."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import numpy as np

import gemmd
from gemmd._layers import memory

from .gpu import FakeTensor, layer_on_fake_gpu


def test_calls_follow_one_another_and_the_host_waits_for_none() -> None:
    random = np.random.default_rng()
    w = random.standard_normal((24, 40), "f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        inputs = [random.standard_normal((m, 40), "f4") for m in (3, 5, 3, 3, 5)]
        outputs = [linear(FakeTensor(x)) for x in inputs]
        torch.streams[0].settle()
        for x, y in zip(inputs, outputs, strict=True):
            np.testing.assert_allclose(y.array, x @ w.T, rtol=1e-4, atol=1e-4)
        calls = len(server.calls)
        turned = FakeTensor(random.standard_normal((40, 3), "f4").T)
        y = linear(turned)  # not dense
        torch.streams[0].settle()
        np.testing.assert_allclose(y.array, turned.array @ w.T, rtol=1e-4, atol=1e-4)
        assert len(server.calls) == calls


def test_another_stream_has_other_memory() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        xs = [FakeTensor(np.full((2, 40), value, "f4")) for value in (1, 2, 3, 4)]
        ys = []
        for i, x in enumerate(xs):
            torch.now = i % 2
            ys.append(linear(x))
        for stream in torch.streams:
            stream.settle()
            assert stream.waited == []
        for x, y in zip(xs, ys, strict=True):
            np.testing.assert_array_equal(y.array, x.array)
        linear.close()
        assert not server.machine.memory


def test_streams_beyond_the_lanes_go_behind_one_another() -> None:
    w = np.eye(40, dtype="f4")
    memory.MAX_LANES = 1
    with layer_on_fake_gpu(w) as (torch, _, linear):
        x = FakeTensor(np.ones((2, 40), "f4"))
        linear(x)
        torch.now = 1
        y = linear(x)
        linear(x)
        assert torch.streams[1].waited == [torch.streams[0]]
        torch.streams[1].settle()
        np.testing.assert_array_equal(y.array, x.array)
    memory.MAX_LANES = 4


def test_the_error_of_a_run_is_the_next_calls() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        x = FakeTensor(np.ones((2, 40), "f4"))
        linear(x)
        torch.streams[0].settle()
        plans, server.plans = server.plans, {}
        linear(x)
        torch.streams[0].settle()
        server.plans = plans
        try:
            linear(x)
        except gemmd.NotFound:
            pass
        else:
            raise AssertionError("nobody was told")
        y = linear(x)
        torch.streams[0].settle()
        np.testing.assert_array_equal(y.array, x.array)


def test_row_counts_have_plans_in_common() -> None:
    random = np.random.default_rng()
    w = random.standard_normal((24, 40), "f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        counts = list(range(17, 33)) * 2
        xs = [FakeTensor(random.standard_normal((m, 40), "f4")) for m in counts]
        for x in xs:
            y = linear(x)
            torch.streams[0].settle()
            assert y.shape == (len(x.array), 24)
            np.testing.assert_allclose(y.array, x.array @ w.T, rtol=1e-4, atol=1e-4)
            del y
        # One of 24 rows and one of 32, each with the result that the last call has let go of.
        assert len(server.arming.armed) == 4


def test_a_session_that_is_dropped_with_its_layers_goes_at_once() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        with gemmd.Client(server.target) as client:
            session = client.session()
            layers = [gemmd.Linear(session, w, quantize=None) for _ in range(2)]
            x = FakeTensor(np.ones((2, 40), "f4"))
            for layer_ in layers:
                layer_(x)
            torch.streams[0].settle()
            gone = weakref.ref(session)
            gc.disable()
            del session, layers, layer_
            assert gone() is None
            gc.enable()


def test_calls_of_another_variant_have_a_slot_of_their_own() -> None:
    """Of a layer whose calls differ in more than rows and type, as a mixture's do in top_k."""

    class Varied(gemmd.Linear):
        variant = 0

    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, _, linear):
        linear.__class__ = Varied
        x = FakeTensor(np.ones((2, 40), "f4"))
        for Varied.variant in (0, 1, 0):
            linear.run(x)
        torch.streams[0].settle()
        assert len(linear._local._gpu_calls) == 2


def test_a_plan_serves_layers_whose_weights_are_as_many_buffers() -> None:
    one, two, three = (SimpleNamespace(buffer_id=name) for name in (b"1", b"2", b"3"))
    plan = memory.SharedPlan(SimpleNamespace(), (one, one, two))
    assert plan.serves((three, three, one)) and plan.serves((one, one, one))
    assert not plan.serves((one, three, two))
