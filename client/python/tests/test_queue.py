import asyncio
import threading
from collections import deque

import numpy as np
import pytest

import gemmd
from gemmd.queue import gather
from gemmd.v1 import compute_service_pb2 as comp

from .fake.machine import Refused


@pytest.fixture
def adder(session):
    """A program that adds one to a running total and reads it: shows order and repetition."""
    total = session.create_buffer(shape=(1, 1), dtype="f32")
    one = session.upload(np.ones((1, 1), "f4"))
    return [gemmd.matmul(one, one, total, c=total, beta=1.0), gemmd.read(total)]


@pytest.fixture
def missing(session):
    """A program that fails: its buffer is gone."""
    with session.create_buffer(shape=(1,), dtype="f32") as gone:
        return [gemmd.fill(gone, 1)]


def test_batches_run_in_the_order_submitted_beyond_the_window(session, adder):
    with session.queue() as queue:
        assert queue.window_batches == 4
        futures = [queue.submit(adder) for _ in range(50)]
    assert [future.result()[0].item() for future in futures] == list(range(1, 51))
    assert futures[0].result().report.kernel == "fake_matmul"


def test_no_message_has_more_batches_than_the_server_takes(fake, session, adder):
    for most, seen in ((3, {1, 2, 3}), (0, {1})):
        fake.batches_per_message, fake.queue_messages = most, []
        with session.queue() as queue:
            for _ in range(100):
                queue.submit(adder)
        assert sum(fake.queue_messages) == 100 and set(fake.queue_messages) <= seen


def test_small_batches_are_gathered_and_large_ones_go_alone():
    small, large = b"s" * 100, b"l" * 70_000  # as if encoded
    waiting = deque([small, small, small, small, large, small, small, large])
    counts = []
    while waiting:
        # Field 2 is one batch, field 3 several.
        message = gather(waiting, 3)
        counts.append(1 if message[0] >> 3 == 2 else message.count(small))
    assert counts == [3, 1, 1, 2, 1]


def breaking(requests, _):
    next(requests)
    yield comp.QueueResponse(opened=comp.QueueOpened(window_batches=4, window_bytes=1 << 20))
    next(requests)
    raise Refused("UNAVAILABLE", "Socket closed")


def test_a_queue_whose_connection_breaks_says_what_to_do(fake, session, adder):
    fake.faults.queue_opening = [breaking]
    queue = session.queue()
    for _ in range(2):
        with pytest.raises(gemmd.Unavailable, match=r"Socket closed: .* broke, .* open a session"):
            queue.submit(adder).result()
    queue.close()


def test_leaving_the_block_waits_for_everything(session, adder):
    with session.queue() as queue:
        futures = [queue.submit(adder) for _ in range(20)]
    assert all(future.done() for future in futures)
    with pytest.raises(gemmd.Cancelled):
        queue.submit(adder)


def test_after_a_failure_later_batches_are_aborted_until_resume(session, adder, missing):
    with session.queue() as queue:
        first, bad, behind = queue.submit(adder), queue.submit(missing), queue.submit(adder)
        again = queue.submit(adder, resume=True)
    assert first.result()[0].item() == 1
    with pytest.raises(gemmd.NotFound, match="does not exist") as caught:
        bad.result()
    assert caught.value.reason == "BUFFER"
    with pytest.raises(gemmd.Aborted):
        behind.result()
    assert again.result()[0].item() == 2


def test_plans_are_queued_with_inputs_and_rebinding(session):
    x, y = (session.create_buffer(shape=(2,), dtype="f32") for _ in range(2))
    plan = session.plan([gemmd.write(x, np.zeros(2, "f4")), gemmd.read(x)])
    with session.queue(report="none") as queue:
        futures = [queue.submit(plan, inputs=[np.full(2, i, "f4")]) for i in range(5)]
        other = queue.submit(plan, rebind={x: y}, inputs=[np.full(2, 9, "f4")])
    assert [future.result()[0][0] for future in futures] == [0, 1, 2, 3, 4]
    assert other.result()[0][1] == 9
    assert (x.download()[0], y.download()[0]) == (4, 9)


def test_a_batch_larger_than_the_window_in_bytes_goes_alone(session):
    x = session.create_buffer(shape=(300_000,), dtype="f32")
    with session.queue() as queue:
        big = [gemmd.write(x, np.ones(300_000, "f4")), gemmd.read(x)]
        futures = [queue.submit(big) for _ in range(3)]
    assert all(future.result()[0][-1] == 1 for future in futures)


def test_a_stream_that_ends_fails_what_is_in_flight_and_what_comes_after(fake, session, adder):
    started = threading.Event()

    def explode(ops, inputs=()):
        started.wait()
        raise RuntimeError("the fake's queue dies")

    fake.run_ops = explode
    queue = session.queue()
    futures = [queue.submit(adder) for _ in range(4)]
    started.set()
    for future in futures:
        with pytest.raises(gemmd.Error):
            future.result(timeout=60)
    with pytest.raises(gemmd.Error):
        queue.submit(adder)
    queue.close()


def test_a_refused_queue_raises_where_it_is_opened(fake, session):
    def refuse(requests, context):
        raise Refused("RESOURCE_EXHAUSTED", "max_streams=1 reached", "STREAMS")
        yield

    fake.faults.queue_opening.append(refuse)
    with pytest.raises(gemmd.ResourceExhausted, match="max_streams") as caught:
        session.queue()
    assert caught.value.reason == "STREAMS"


def test_threads_may_share_a_queue(session, adder):
    results = []
    with session.queue() as queue:

        def work():
            for _ in range(20):
                results.append(queue.submit(adder).result()[0].item())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == list(range(1, 81))


def test_a_future_that_is_cancelled_leaves_the_others_alone(session, adder):
    with session.queue() as queue:
        for _ in range(10):
            assert queue.submit(adder).cancel()
        last = queue.submit(adder)
        assert last.result(timeout=60)[0].item() == 11  # the others ran all the same


def test_a_wait_for_that_times_out_leaves_the_others_alone(session, adder):
    async def impatient(queue):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(queue.submit(adder)), 0)
        return await asyncio.wait_for(asyncio.wrap_future(queue.submit(adder)), 20)

    with session.queue() as queue:
        assert asyncio.run(impatient(queue))[0].item() == 2


def test_a_callback_may_submit_more_than_the_window_takes(session, adder):
    later = []
    with session.queue() as queue:

        def more(future):
            later.extend(queue.submit(adder) for _ in range(3 * queue.window_batches))

        first = queue.submit(adder)
        first.add_done_callback(more)
        first.result(timeout=60)
        behind = queue.submit(adder)
        behind.result(timeout=60)
    assert sorted(one.result()[0].item() for one in [first, behind, *later]) == list(range(1, 15))


def test_leaving_the_block_waits_for_what_callbacks_submitted(session, adder):
    later = []
    submitted = threading.Event()

    def more(future):
        later.extend(queue.submit(adder) for _ in range(3 * queue.window_batches))
        submitted.set()

    with session.queue() as queue:
        queue.submit(adder).add_done_callback(more)
        assert submitted.wait(60)
    assert [one.result(timeout=0)[0].item() for one in later] == list(range(2, 14))


def test_a_block_that_raises_does_not_hang(session, adder):
    with pytest.raises(KeyError), session.queue() as queue:
        queue.submit(adder)
        raise KeyError("mine")
