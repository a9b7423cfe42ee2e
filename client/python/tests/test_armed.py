"""Armed plans against the fake: rings, waits, failures, and the layers that use them."""

import asyncio
import threading
import time

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd import native
from gemmd._wire import methods

from .conftest import QUICK
from .fake.machine import Refused

pytestmark = pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())


@pytest.fixture
def session(arming_fake):
    with (
        gemmd.Client(arming_fake.target, timeout_s=20, retry=QUICK) as client,
        client.session() as session,
    ):
        yield session


@pytest.fixture
def matmul(session, random):
    """A plan y = x @ w.T, and the two arrays shared with the server."""
    w = random.standard_normal((8, 16), "f4")
    x = session.create_buffer(shape=(4, 16), dtype="f32", memory_kind="host_shared")
    y = session.create_buffer(shape=(4, 8), dtype="f32", memory_kind="host_shared")
    plan = session.plan([gemmd.matmul(x, session.upload(w), y)])
    return plan, x.array(), y.array(), w


def test_each_ring_runs_the_plan_on_what_the_buffers_hold_then(arming_fake, matmul, random):
    plan, x, y, w = matmul
    with plan.arm() as armed:
        calls = len(arming_fake.calls)
        for count in range(1, 6):
            x[...] = random.standard_normal(x.shape, "f4")
            report = armed.run(timeout_s=60)
            np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-5)
            assert report.run == count and report.device_seconds > 0
        assert len(arming_fake.calls) == calls  # none of it was a call


def test_a_ring_returns_at_once_and_done_tells_when_it_is(matmul):
    plan, _, _, _ = matmul
    with plan.arm() as armed:
        armed.ring()
        end = time.monotonic() + 60
        while not armed.done():
            assert time.monotonic() < end
        armed.wait(0)


def test_a_second_ring_before_the_wait_is_refused(matmul):
    plan, _, _, _ = matmul
    with plan.arm() as armed:
        armed.ring()
        with pytest.raises(gemmd.FailedPrecondition, match="wait for it"):
            armed.ring()
        armed.wait(10)
        with pytest.raises(gemmd.FailedPrecondition, match="ring it first"):
            armed.wait(10)


def test_other_buffers_may_take_the_place_of_the_plans(session, matmul, random):
    plan, _, y, w = matmul
    other = session.create_buffer(shape=(4, 16), dtype="f32", memory_kind="host_shared")
    other.array()[...] = random.standard_normal((4, 16), "f4")
    owner = plan.ops[0].owners[0].values.owner
    with plan.arm({owner: other}) as armed:
        armed.run(10)
        np.testing.assert_allclose(y, other.array() @ w.T, rtol=1e-4, atol=1e-5)


def test_a_run_that_fails_raises_what_the_server_says(arming_fake, matmul):
    plan, _, _, _ = matmul
    armed = plan.arm()
    arming_fake.plans.clear()  # the plan is gone
    with pytest.raises(gemmd.NotFound, match="plan does not exist") as caught:
        armed.run(10)
    assert caught.value.reason == "PLAN" and caught.value.message.startswith("the plan does not")
    with pytest.raises(gemmd.NotFound):
        armed.check()


LONG = "op 2 (grouped_matmul): ids[3]=7 is no expert; they are 0 to 3, or -1 for none"


@pytest.mark.parametrize("message", [LONG, LONG[:48], LONG[:47], LONG[:46]])
@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_all_of_a_runs_message_is_told(arming_fake, session, monkeypatch, face, message):
    """The region has room for its beginning."""

    def refuse(*_):
        raise Refused("NOT_FOUND", message, "DATA")

    async def awaited():
        client = gemmd.aio.Client(arming_fake.target, timeout_s=20, retry=QUICK)
        async with client, client.session() as session:
            plan = await session.plan([gemmd.fill(await session.upload(np.ones(4, "f4")), 1)])
            async with await plan.arm() as armed:
                await armed.run(10)

    def called():
        with session.plan([gemmd.fill(session.upload(np.ones(4, "f4")), 1)]).arm() as armed:
            armed.run(10)

    monkeypatch.setattr(arming_fake, "run_ops", refuse)
    with pytest.raises(gemmd.NotFound) as caught:
        asyncio.run(awaited()) if face == "asyncio" else called()
    assert (caught.value.message, caught.value.reason) == (message, "DATA")


def test_a_wait_gives_up_after_its_time_and_may_be_repeated(arming_fake, matmul):
    plan, _, _, _ = matmul
    armed = plan.arm()
    arming_fake.arming.stopped.set()
    armed.ring()
    time.sleep(0.01)
    if not armed.done():
        with pytest.raises(gemmd.DeadlineExceeded, match="goes on"):
            armed.wait(0.02)
        with pytest.raises(gemmd.DeadlineExceeded):
            armed.wait(0.02)


def test_a_wait_lets_other_threads_run(arming_fake, matmul):
    plan, _, _, _ = matmul
    armed = plan.arm()
    arming_fake.arming.stopped.set()
    arming_fake.arming._thread.join()
    armed.ring()
    outcome = []
    waiter = threading.Thread(target=lambda: outcome.append(armed.wait(20)))
    waiter.start()
    arming_fake.arming.region.answer(armed.slot_index, 5, 0, "", "")  # this thread runs
    waiter.join(20)
    assert outcome == [None]


def test_a_session_that_ends_ends_waits(arming_fake, matmul):
    plan, _, _, _ = matmul
    armed = plan.arm()
    arming_fake.arming.stopped.set()
    arming_fake.arming._thread.join()
    armed.ring()
    arming_fake.arming.region.end()
    with pytest.raises(gemmd.Unavailable, match="session has ended"):
        armed.wait(20)
    with pytest.raises(gemmd.Unavailable, match="session has ended"):
        armed.ring()


def test_disarming_frees_the_slot_once(arming_fake, matmul):
    plan, _, _, _ = matmul
    armed = plan.arm()
    armed.disarm()
    armed.disarm()
    assert arming_fake.count(methods.DISARM_PLAN) == 1 and not arming_fake.arming.armed
    with pytest.raises(gemmd.FailedPrecondition, match="disarmed"):
        armed.ring()


def test_a_stream_cannot_ring_what_was_armed_for_the_host(matmul):
    plan, _, _, _ = matmul
    with plan.arm() as armed, pytest.raises(gemmd.FailedPrecondition, match="rung_by_stream"):
        armed.ring_on(1)
    with pytest.raises(TypeError, match="no CUDA stream"):
        armed.ring_on("stream")


def test_a_server_that_arms_nothing_is_told(sharing_fake):
    with gemmd.Client(sharing_fake.target, retry=QUICK) as client, client.session() as session:
        assert session.arming.why_not()
        x = session.create_buffer(shape=(4, 4), dtype="f32")
        with pytest.raises(gemmd.Error):
            session.plan([gemmd.fill(x, 1)]).arm()


# Layers.


def test_a_layer_in_steady_state_calls_nobody(arming_fake, session, random):
    w = random.standard_normal((16, 16), "f4")
    layer = gemmd.Linear(session, w, quantize=None)
    x = random.standard_normal((4, 16), "f4")
    layer(x)
    before = len(arming_fake.calls)
    for _ in range(5):
        x[...] = random.standard_normal(x.shape, "f4")
        y = layer(x)
        np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-5)
    assert len(arming_fake.calls) == before
    assert y.report.path == "armed" and "armed" in repr(layer)


def test_a_layer_of_a_server_elsewhere_says_how_it_goes(client, random):
    with client.session() as session:
        layer = gemmd.Linear(session, random.standard_normal((4, 4), "f4"), quantize=None)
        assert "not called yet" in repr(layer)
        assert layer(np.ones((1, 4), "f4")).report.path == "call"
        assert "by gRPC: " in repr(layer)


def test_row_counts_share_memory_and_those_long_unused_give_up_their_slots(
    arming_fake, session, random, monkeypatch
):
    monkeypatch.setattr("gemmd._layers.seats.MAX_SEATS", 3)
    w = random.standard_normal((16, 32), "f4")
    layer = gemmd.Linear(session, w, quantize=None)
    for m in (1, 2, 3, 1, 4, 1, 5, 9, 2):
        x = random.standard_normal((m, 32), "f4")
        np.testing.assert_allclose(layer(x), x @ w.T, rtol=1e-4, atol=1e-4)
    assert len(arming_fake.arming.armed) == 3
    assert sum(one.label == "activations" for one in session.buffers()) == 2
    layer.close()
    assert not arming_fake.arming.armed and not arming_fake.plans


def test_a_larger_batch_takes_the_place_of_a_smaller_ones_memory(arming_fake, session, random):
    w = random.standard_normal((512, 512), "f4")
    layer = gemmd.Linear(session, w, quantize=None)
    for m in (1, 2000, 1):
        x = random.standard_normal((m, 512), "f4")
        np.testing.assert_allclose(layer(x), x @ w.T, rtol=1e-3, atol=1e-3)
    assert sum(one.label == "activations" for one in session.buffers()) == 2


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
        np.testing.assert_allclose(y, x @ w.T, rtol=1e-3, atol=1e-4)


# asyncio.


def test_an_awaited_run_lets_the_loop_run(arming_fake, random):
    w = random.standard_normal((8, 16), "f4")

    async def main():
        client = gemmd.aio.Client(arming_fake.target, timeout_s=20, retry=QUICK)
        async with client, client.session() as session:
            x = await session.create_buffer(shape=(4, 16), dtype="f32", memory_kind="host_shared")
            y = await session.create_buffer(shape=(4, 8), dtype="f32", memory_kind="host_shared")
            plan = await session.plan([gemmd.matmul(x, await session.upload(w), y)])
            here, there = await x.array(), await y.array()
            async with await plan.arm() as armed:
                for count in range(1, 4):
                    here[...] = random.standard_normal((4, 16), "f4")
                    arming_fake.arming.goes.clear()

                    async def others():
                        arming_fake.arming.goes.set()

                    task = asyncio.create_task(others())
                    report = await armed.run(20)
                    assert report.run == count and task.done()
                    np.testing.assert_allclose(there, here @ w.T, rtol=1e-4, atol=1e-5)
            arming_fake.arming.stopped.set()
            arming_fake.arming._thread.join()
            async with await plan.arm() as armed:
                armed.ring()
                with pytest.raises(gemmd.DeadlineExceeded):
                    await armed.wait(0.01)
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(armed.wait(), 0.05)

    asyncio.run(main())


def test_an_awaited_long_run_wakes_the_loop_seldom(arming_fake, monkeypatch):
    pauses, sleep = [], asyncio.sleep

    async def noted(pause):
        pauses.append(pause)
        await sleep(pause)

    async def main():
        client = gemmd.aio.Client(arming_fake.target, timeout_s=20, retry=QUICK)
        async with client, client.session() as session:
            y = await session.create_buffer(shape=(4, 8), dtype="f32")
            plan = await session.plan([gemmd.fill(y, 1)])
            arming_fake.arming.stopped.set()
            arming_fake.arming._thread.join()
            async with await plan.arm() as armed:
                armed.ring()
                began = time.monotonic()
                monkeypatch.setattr(gemmd.aio.armed.asyncio, "sleep", noted)
                with pytest.raises(gemmd.DeadlineExceeded):
                    await armed.wait(0.5)
                monkeypatch.undo()
                assert 0.5 <= time.monotonic() - began < 60

    asyncio.run(main())
    later = [pause for pause in pauses if pause > 0]
    assert len(later) < 100 and max(later) <= 0.025
    assert sum(pauses) < 0.51  # the last one does not pass the limit
