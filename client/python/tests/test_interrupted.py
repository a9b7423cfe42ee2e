"""Calls that end before their programs do: what runs on must not reach what comes next."""

import asyncio
import gc
import signal
import threading

import grpc
import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd import native
from gemmd._wire import methods
from gemmd.armed import Armed

from .conftest import QUICK


class Interrupt(Exception):
    """What a handler of a signal raises, as Ctrl-C does."""


@pytest.fixture
def interrupting():
    """`interrupting()` raises `Interrupt` in this thread soon."""

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.05)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


class Gate:
    """Programs of the fake wait until it is opened."""

    def __init__(self, fake, monkeypatch):
        self._open = threading.Event()
        run = fake.run_ops

        def held(ops, inputs=()):
            assert self._open.wait(60)
            return run(ops, inputs)

        self._close = lambda: monkeypatch.setattr(fake, "run_ops", held)

    def __enter__(self):
        self._open.clear()
        self._close()
        return self

    def __exit__(self, *_):
        self._open.set()


@pytest.fixture
def ones():
    return np.ones((4, 16), "f4"), np.ones((8, 16), "f4")


@pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())
@pytest.mark.parametrize("rows_then", [4, 3], ids=["as many rows", "other rows"])
def test_a_layer_that_was_interrupted_in_an_armed_call_goes_on(
    arming_fake, monkeypatch, interrupting, ones, rows_then
):
    x, w = ones
    with (
        gemmd.Client(arming_fake.target, timeout_s=20, retry=QUICK) as client,
        client.session() as session,
        gemmd.Linear(session, w, quantize=None) as layer,
    ):
        assert layer(x).report.path == "armed"
        layer(x[:rows_then])
        with Gate(arming_fake, monkeypatch):
            with pytest.raises(Interrupt):
                interrupting()
                layer(x)
        for factor in (2, 3):
            got = layer(factor * x[:rows_then])
            np.testing.assert_array_equal(got, np.full((rows_then, 8), factor * 16))


@pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())
def test_an_interrupt_just_after_the_ring_leaves_its_memory_to_the_run(
    arming_fake, monkeypatch, ones
):
    x, w = ones
    with (
        gemmd.Client(arming_fake.target, timeout_s=20, retry=QUICK) as client,
        client.session() as session,
        gemmd.Linear(session, w, quantize=None) as layer,
    ):
        layer(x)
        ring = Armed.ring

        def interrupted(armed):
            ring(armed)
            raise Interrupt

        with Gate(arming_fake, monkeypatch), monkeypatch.context() as patch:
            patch.setattr(Armed, "ring", interrupted)
            with pytest.raises(Interrupt):
                layer(x)
        np.testing.assert_array_equal(layer(2 * x), np.full((4, 8), 32))


@pytest.mark.parametrize("moment", ["__enter__", "__exit__"])
def test_an_interrupt_while_grpcio_takes_its_lock_stops_no_other_call(session, monkeypatch, moment):
    session.keep_alive()
    real, this_thread = getattr(threading.Condition, moment), threading.get_ident()

    def interrupted(self, *args):
        if threading.get_ident() != this_thread:
            return real(self, *args)
        if moment == "__enter__":
            real(self)
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Condition, moment, interrupted)
        with pytest.raises(Interrupt):
            session.keep_alive()
    other = threading.Thread(target=session.keep_alive, daemon=True)
    other.start()
    other.join(10)
    assert not other.is_alive()


@pytest.mark.parametrize("moment", ["__enter__", "__exit__"])
def test_an_interrupt_while_a_queue_opens_stops_no_other_queue(session, monkeypatch, moment):
    """All streams of a client are served by one thread of grpcio's, which takes each one's lock."""
    held = session.upload(np.ones(2, "f4"))
    session.queue().close()
    real, this_thread = getattr(threading.Condition, moment), threading.get_ident()
    waits = grpc._common.wait

    def interrupted(self, *args):
        if threading.get_ident() != this_thread:
            return real(self, *args)
        if moment == "__enter__":
            real(self)
        raise Interrupt

    def meanwhile(*args, **options):
        if threading.get_ident() == this_thread:
            monkeypatch.setattr(threading.Condition, moment, interrupted)
        return waits(*args, **options)

    monkeypatch.setattr(grpc._common, "wait", meanwhile)
    if moment == "__enter__":
        monkeypatch.setattr(threading.Condition, moment, interrupted)
    with pytest.raises(Interrupt):
        session.queue()
    monkeypatch.undo()
    gc.collect()  # what is dropped is cancelled, and grpcio's thread is told
    results = []

    def use():
        with session.queue() as queue:
            results.append(queue.submit([gemmd.read(held)]).result(10)[0].sum())

    other = threading.Thread(target=use, daemon=True)
    other.start()
    other.join(20)
    assert results == [2]


def test_a_batch_that_an_interrupt_kept_from_being_sent_is_not_waited_for(session, monkeypatch):
    d = session.create_buffer(shape=(2,), dtype="f32")

    class Interrupted:
        put = staticmethod(lambda *_: signal.raise_signal(signal.SIGINT))

    with session.queue() as queue:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(queue, "_outgoing", Interrupted)
            queue.submit([gemmd.fill(d, 1)])
        result = queue.submit([gemmd.fill(d, 2), gemmd.read(d)]).result(10)
        np.testing.assert_array_equal(result[0], [2, 2])


@pytest.fixture(params=["arrays", "layer", "large arrays"])
def multiply(request, session, ones):
    """x -> x @ w.T by ways that keep memory on the server between calls."""
    w = ones[1]
    if request.param == "layer":
        return gemmd.Linear(session, w, quantize=None)
    repeated = (1 << 18) if request.param == "large arrays" else 4
    return lambda x: session.matmul(np.resize(x, (repeated, 16)), w.T)[: len(x)]


def memory(session):
    return {one.buffer_id for one in session.buffers() if one.label in ("scratch", "activations")}


@pytest.mark.parametrize(
    "code, kept",
    [("DEADLINE_EXCEEDED", False), ("UNAVAILABLE", False), ("INVALID_ARGUMENT", True)],
)
def test_memory_of_a_call_that_may_still_run_is_not_used_again(
    fake, session, multiply, ones, code, kept
):
    x, _ = ones
    multiply(x)
    before = memory(session)
    for method in (methods.EXECUTE, methods.RUN_PLAN):
        fake.fail(method, code, times=QUICK.attempts)
    with pytest.raises(gemmd.Error):
        multiply(x)
    fake.faults.statuses.clear()
    np.testing.assert_array_equal(multiply(2 * x), np.full((4, 8), 32))
    after = memory(session)
    assert len(after) == len(before)  # what was lost is deleted
    assert after == before if kept else not after & before


def test_a_cancelled_matmul_leaves_its_memory_to_what_it_started(fake, monkeypatch, ones):
    x, w = ones

    async def cancelled():
        async with gemmd.aio.Client(fake.target) as client, client.session() as session:
            await session.matmul(x, w.T)
            before = {one.buffer_id for one in await session.buffers()}
            with Gate(fake, monkeypatch), pytest.raises(TimeoutError):
                await asyncio.wait_for(session.matmul(x, w.T), 0.1)
            np.testing.assert_array_equal(await session.matmul(2 * x, w.T), np.full((4, 8), 32))
            after = {one.buffer_id for one in await session.buffers()}
            assert len(after) == len(before) and not after & before

    asyncio.run(cancelled())


def test_memory_that_is_made_while_its_matmul_is_cancelled_is_used_by_the_next(
    fake, monkeypatch, ones
):
    x, w = ones
    may = threading.Event()

    class Slow(dict):
        def __setitem__(self, key, value):
            assert may.wait(20)
            super().__setitem__(key, value)

    async def cancelled():
        async with gemmd.aio.Client(fake.target) as client, client.session() as session:
            monkeypatch.setattr(fake.machine, "memory", Slow(fake.machine.memory))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.matmul(x, w.T), 0.1)
            may.set()
            while not await session.buffers():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            await session.matmul(x, w.T)
            assert len(await session.buffers()) == 1

    asyncio.run(cancelled())
