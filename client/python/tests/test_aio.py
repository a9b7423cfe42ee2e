import asyncio
import functools
import gc
import threading
import time
import warnings

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd._memory import lanes
from gemmd._wire import methods

from .conftest import QUICK
from .fake.machine import Refused

CUT = Refused("UNAVAILABLE", "connection reset")


def in_loop(test):
    """Runs an async test to its end, with 20 s to do it."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        async def bounded():
            await asyncio.wait_for(test(*args, **kwargs), 20)

        asyncio.run(bounded())

    return run


def connect(fake):
    return gemmd.aio.Client(fake.target, timeout_s=10, retry=QUICK)


@in_loop
async def test_a_time_without_end_is_no_limit(fake):
    async with connect(fake) as client, client.session() as session:
        buffer = await session.upload(np.ones(4, "f4"))
        for timeout_s in (1e12, float("inf")):
            await session.execute([gemmd.fill(buffer, 0)], timeout_s=timeout_s)


@in_loop
async def test_one_round_trip_writes_multiplies_and_reads(fake, random):
    a, b = random.standard_normal((5, 7), "f4"), random.standard_normal((3, 7), "f4")
    async with connect(fake) as client, client.session() as session:
        x = await session.create_buffer(shape=a.shape, dtype="f32")
        w = await session.upload(b)
        d = await session.create_buffer(shape=(5, 3), dtype="f32")
        ops = [gemmd.write(x, a), gemmd.matmul(x, w, d), gemmd.read(d)]
        result = await session.execute(ops)
        np.testing.assert_allclose(result[0], a @ b.T, rtol=1e-5, atol=1e-5)
        step = session.prepare(ops)
        np.testing.assert_array_equal((await step())[0], result[0])
    assert fake.count(methods.CLOSE_SESSION) == 1


@in_loop
async def test_deterministic_programs_and_plans_say_so(fake):
    async with connect(fake) as client, client.session() as session:
        t = await session.create_buffer(shape=(2,), dtype="f32")
        await session.execute([gemmd.fill(t, 1)], deterministic=True)
        plan = await session.plan([gemmd.fill(t, 1)], deterministic=True)
        assert plan.deterministic
    for method in (methods.EXECUTE, methods.CREATE_PLAN):
        assert next(request for name, request in fake.calls if name == method).deterministic


@in_loop
async def test_many_calls_are_in_flight_at_once(fake, random):
    a = random.standard_normal((8, 8), "f4")
    async with connect(fake) as client, client.session() as session:
        results = await asyncio.gather(*(session.matmul(a * i, a) for i in range(20)))
    for i, got in enumerate(results):
        np.testing.assert_allclose(got, (a * i) @ a, rtol=1e-4, atol=1e-4)
        assert got.report.kernel == "fake_matmul"


@in_loop
async def test_errors_carry_message_reason_and_request_id(fake):
    fake.fail(methods.EXECUTE, "INVALID_ARGUMENT", "n=70 is odd", "SHAPE")
    async with connect(fake) as client, client.session() as session:
        with pytest.raises(gemmd.InvalidArgument, match="n=70") as caught:
            await session.execute([])
    assert (caught.value.reason, caught.value.request_id) == ("SHAPE", "r-7")


@in_loop
async def test_execute_is_retried_with_its_op_id_and_creation_is_not(fake):
    async with connect(fake) as client, client.session() as session:
        t = await session.upload(np.ones((1, 1), "f4"))
        fake.faults.after_running[methods.EXECUTE] = [CUT]
        result = await session.execute([gemmd.fill(t, 3), gemmd.read(t)])
        assert result.replayed and result[0].item() == 3
        fake.fail(methods.CREATE_BUFFER, "UNAVAILABLE", "connection reset")
        with pytest.raises(gemmd.Unavailable):
            await session.create_buffer(16)
    assert fake.runs == 1


@in_loop
async def test_transfers_resume_and_check_every_chunk(fake, random):
    data = random.integers(0, 255, (5 << 19,), np.uint8).view(np.int8)
    async with connect(fake) as client, client.session() as session:
        buffer = await session.create_buffer(shape=data.shape, dtype="i8")
        fake.faults.cut_upload_after = [(1, CUT)]
        assert (await buffer.upload(data)).resumed == 1
        fake.faults.cut_download_after = [1]
        fake.faults.corrupt_download_chunk = [0]
        got = await buffer.download()
        np.testing.assert_array_equal(got, data)
        assert got.transfer.resumed >= 1
        fake.faults.corrupt_download_chunk = [0] * 9
        with pytest.raises(gemmd.DataLoss):
            await buffer.download()


@in_loop
async def test_shared_memory_is_taken_when_there_is_some(sharing_fake, random):
    data = random.standard_normal((5 << 20) + 3, "f4")
    async with connect(sharing_fake) as client, client.session() as session:
        buffer = await session.upload(data)
        assert buffer.transfer.path == "shm"
        got = await buffer.download()
        assert got.transfer.path == "shm"
        np.testing.assert_array_equal(got, data)
        shared = await session.create_buffer(shape=(4,), dtype="f32", memory_kind="host_shared")
        (await shared.array())[:] = 2
        assert (await session.execute([gemmd.read(shared)]))[0][3] == 2
        mine = await session.import_array(np.full(4, 6, "f4"))
        assert (await session.execute([gemmd.read(mine)]))[0][0] == 6
    assert sharing_fake.count(methods.UPLOAD) == 0


@in_loop
async def test_a_queue_keeps_order_and_stops_after_a_failure(fake):
    async with connect(fake) as client, client.session() as session:
        total = await session.create_buffer(shape=(1, 1), dtype="f32")
        one = await session.upload(np.ones((1, 1), "f4"))
        add = [gemmd.matmul(one, one, total, c=total, beta=1.0), gemmd.read(total)]
        gone = await session.create_buffer(shape=(1,), dtype="f32")
        await gone.delete()
        async with session.queue() as queue:
            futures = [await queue.submit(add) for _ in range(30)]
            bad = await queue.submit([gemmd.fill(gone, 1)])
            behind = await queue.submit(add)
            again = await queue.submit(add, resume=True)
        assert [(await future)[0].item() for future in futures] == list(range(1, 31))
        with pytest.raises(gemmd.NotFound):
            await bad
        with pytest.raises(gemmd.Aborted):
            await behind
        assert (await again)[0].item() == 31
        with pytest.raises(gemmd.Cancelled):
            await queue.submit(add)


@pytest.mark.parametrize("up", [True, False])
@in_loop
async def test_a_copy_that_fails_costs_the_staging_memory(sharing_fake, random, up):
    large = random.standard_normal((5 << 20) + 3, "f4")
    async with connect(sharing_fake) as client, client.session() as session:
        buffer = await session.upload(large)
        exported = sharing_fake.count(methods.EXPORT_BUFFER)
        sharing_fake.faults.statuses[methods.EXECUTE] = [Refused("INTERNAL", "no more", "BROKEN")]
        with pytest.raises(gemmd.Internal, match="no more"):
            await (buffer.upload(large) if up else buffer.download())
        assert (await buffer.upload(large)).path == "shm"
        assert sharing_fake.count(methods.EXPORT_BUFFER) == exported + 1
        np.testing.assert_array_equal(await buffer.download(), large)


@pytest.mark.parametrize("refused", [True, False])
@in_loop
async def test_a_longer_transfer_gets_a_larger_staging_buffer(
    sharing_fake, random, monkeypatch, refused
):
    monkeypatch.setattr(lanes, "_LONG_FROM_BYTES", 16 << 20)
    large = random.standard_normal((5 << 20) + 3, "f4")
    async with connect(sharing_fake) as client, client.session() as session:
        await session.upload(large[: 3 << 20])
        buffer = await session.create_buffer(shape=large.shape, dtype="f32")
        if refused:
            sharing_fake.fail(methods.CREATE_BUFFER, "RESOURCE_EXHAUSTED", "no", "TENANT_LIMIT")
        for _ in range(2):
            assert (await buffer.upload(large)).path == "shm"
        np.testing.assert_array_equal(await buffer.download(), large)
        piece = lanes.PIECE_BYTES if refused else lanes.LONG_PIECE_BYTES
        sizes = [
            b.size_bytes for b in sharing_fake.machine.described.values() if b.label == "staging"
        ]
        assert sizes == [lanes.MOST_LANES * piece]


@in_loop
async def test_a_download_fills_the_callers_array(sharing_fake, random):
    data = random.standard_normal((300, 400), "f4")
    async with connect(sharing_fake) as client, client.session() as session:
        buffer, out = await session.upload(data), np.empty_like(data)
        got = await buffer.download(out=out)
        assert got.base is out and got.transfer.nbytes == data.nbytes
        np.testing.assert_array_equal(out, data)


@in_loop
async def test_batches_submitted_at_once_share_messages(fake):
    async with connect(fake) as client, client.session() as session:
        t = await session.create_buffer(shape=(1,), dtype="f32")
        async with session.queue() as queue:
            futures = [await queue.submit([gemmd.fill(t, 1)]) for _ in range(4)]
        assert [len(await future) for future in futures] == [0] * 4
    assert fake.queue_messages == [3, 1]


@in_loop
async def test_a_queues_stream_that_dies_fails_what_is_in_flight(fake):
    def explode(ops, inputs=()):
        raise RuntimeError("the fake's queue dies")

    async with connect(fake) as client, client.session() as session:
        t = await session.create_buffer(shape=(1,), dtype="f32")
        fake.run_ops = explode
        async with session.queue() as queue:
            future = await queue.submit([gemmd.fill(t, 1)])
            with pytest.raises(gemmd.Error):
                await future
            with pytest.raises(gemmd.Error):
                await queue.submit([gemmd.fill(t, 1)])


@in_loop
async def test_a_refused_queue_raises_where_it_is_opened(fake):
    def refuse(requests, context):
        raise Refused("RESOURCE_EXHAUSTED", "max_streams=1 reached", "STREAMS")
        yield

    fake.faults.queue_opening += [refuse] * 4  # it may be opened again
    async with connect(fake) as client, client.session() as session:
        with pytest.raises(gemmd.ResourceExhausted, match="max_streams") as caught:
            await session.queue()
    assert caught.value.reason == "STREAMS"


@in_loop
async def test_plans_publishing_and_listing_have_the_same_nouns(fake):
    async with connect(fake) as client, client.session() as session:
        x = await session.upload(np.zeros(2, "f4"))
        async with await session.plan([gemmd.write(x, [1, 2]), gemmd.read(x)]) as plan:
            assert (await plan.run(inputs=[[3, 4]]))[0][1] == 4
        await x.publish("x")
        found = await session.find("x")
        assert (await found.refresh()).read_only
        await session.unpublish("x")
        assert len(await session.buffers()) == 1
        async with await session.create_buffer(16):
            assert len(await session.buffers()) == 2
        await session.keep_alive()
        operand = await session.operand((130, 130), gemmd.Granularity.BLOCK_128X128)
        assert (operand.scales.shape, operand.scales.is_dense) == ((2, 2), True)
        operand = await session.operand((130, 300), gemmd.Granularity.BLOCK_1X128)
        assert (operand.scales.shape, operand.scales.strides) == ((130, 3), (1, 132))
        assert [device.name for device in await client.devices()] == ["cpu:0"]
        assert (await client.explain(1, 2, 3)).problem == "1x2x3 dtype 1"


@in_loop
async def test_large_products_and_products_left_on_the_device(fake, random):
    a = random.standard_normal((1024, 300), "f4")
    async with connect(fake) as client, client.session() as session:
        d = await session.matmul(a, a.T[:, :64].copy(), quantize="fp8-row")
        assert d.shape == (1024, 64) and d.transfer
        out = await session.create_buffer(shape=(4, 4), dtype="f32")
        result = await session.matmul(a[:4, :4], a[:4, :4], out=out)
        assert len(result) == 0 and result.report.kernel == "fake_matmul"


@in_loop
async def test_a_held_session_hears_that_the_server_drains(fake):
    async with connect(fake) as client, client.session() as session:
        fake.drain.set()
        for _ in range(1000):
            if session.draining:
                break
            await asyncio.sleep(0.005)
        assert session.draining


@in_loop
async def test_no_server_is_unavailable(tmp_path):
    async with gemmd.aio.Client(f"unix:{tmp_path}/no.sock", retry=QUICK) as client:
        with pytest.raises(gemmd.Unavailable):
            await client.info()
        with pytest.raises(gemmd.Unavailable, match="no connection"):
            await client.wait_ready(0.05)


@in_loop
async def test_integers_are_refused_and_float64_warns_as_without_asyncio(fake):
    whole = np.ones((4, 4), np.int64)
    async with connect(fake) as client, client.session() as session:
        with pytest.raises(TypeError, match="a has dtype int64"):
            await session.matmul(whole, whole)
        with pytest.raises(TypeError, match="data has dtype int64"):
            await session.upload(whole)
        with pytest.raises(TypeError, match="weight has dtype int64"):
            await gemmd.aio.Linear.create(session, whole, quantize=None)
        with pytest.warns(gemmd.PrecisionWarning, match="a, b: float64") as caught:
            await session.matmul(whole.astype("f8"), whole.astype("f8"))
        assert [one.filename for one in caught] == [__file__]


@in_loop
async def test_a_session_that_is_dropped_is_closed_and_says_so(fake, random):
    a = random.standard_normal((200, 200), "f4")
    async with connect(fake) as client:
        session = await client.session()
        large = await session.upload(a)
        await session.matmul(a, a)
        await session.matmul(a, large)
        del large
        await asyncio.sleep(0)
        with pytest.warns(ResourceWarning, match=r"unclosed Session\(.*`with`"):
            del session
            gc.collect()
        while fake.sessions:
            await asyncio.sleep(0.01)
    assert fake.count(methods.CLOSE_SESSION) == 1


@in_loop
async def test_a_stream_that_breaks_is_opened_anew(fake):
    async with connect(fake) as client, client.session():
        fake.cut_hold.set()
        while fake.count(methods.HOLD) < 2 or not fake.held:
            await asyncio.sleep(0.01)


def test_a_session_that_outlives_its_loop_is_dropped_in_peace(fake):
    async def leave():
        async with connect(fake) as client:
            return await client.session()

    session = asyncio.run(leave())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del session
        gc.collect()


@in_loop
async def test_an_upload_that_is_cancelled_leaves_nothing(fake, monkeypatch):
    async with connect(fake) as client, client.session() as session:
        create, begun = fake.create_buffer, asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(request):
            loop.call_soon_threadsafe(begun.set)
            time.sleep(0.2)
            return create(request)

        monkeypatch.setattr(fake, "create_buffer", slow)
        upload = asyncio.create_task(session.upload(np.ones(4, "f4")))
        await begun.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        monkeypatch.undo()
        while not session.sharing.lost:
            await asyncio.sleep(0.01)
        await (await session.upload(np.ones(4, "f4"))).delete()  # the next upload clears up
        assert not await session.buffers()


@in_loop
async def test_a_queue_that_was_awaited_is_a_context_manager_too(fake):
    async with connect(fake) as client, client.session() as session:
        held = await session.upload(np.ones(2, "f4"))
        async with await session.queue() as queue:
            future = await queue.submit([gemmd.read(held)])
        assert (await future)[0].sum() == 2
        with pytest.raises(gemmd.Cancelled, match="the queue is closed"):
            await queue.submit([gemmd.read(held)])


@in_loop
async def test_a_queues_block_that_raises_does_not_wait_for_its_work(fake, monkeypatch):
    go_on, run = threading.Event(), fake.run_ops

    def held_up(ops, inputs=()):
        assert go_on.wait(60)
        return run(ops, inputs)

    async with connect(fake) as client, client.session() as session:
        held = await session.upload(np.ones(2, "f4"))
        monkeypatch.setattr(fake, "run_ops", held_up)
        try:
            with pytest.raises(KeyError):
                async with session.queue() as queue:
                    future = await queue.submit([gemmd.read(held)])
                    raise KeyError("mine")
            with pytest.raises(gemmd.Cancelled):
                await future
        finally:
            go_on.set()
