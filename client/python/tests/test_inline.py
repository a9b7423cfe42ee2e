"""Inline data of programs: in shared memory where it can be, else in the message."""

import asyncio
import gc

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd._memory import inline
from gemmd._wire import methods

from .conftest import QUICK
from .fake.machine import Refused

SHARED, SENT = ["from", "to"], ["data", "reply"]


@pytest.fixture
def client(sharing_fake):
    with gemmd.Client(sharing_fake.target, timeout_s=20, retry=QUICK) as client:
        yield client


def there_and_back(x, array):
    return [gemmd.write(x, array), gemmd.read(x)]


def ran(fake):
    """Where the bytes of the latest Execute's writes and reads were."""
    request = next(request for method, request in reversed(fake.calls) if method == methods.EXECUTE)
    return [
        ("from" if op.write.HasField("from") else "data")
        if op.HasField("write")
        else ("to" if op.read.HasField("to") else "reply")
        for op in request.ops
        if op.WhichOneof("kind") in ("write", "read")
    ]


def test_much_data_is_shared_and_little_is_sent(sharing_fake, session, x, array):
    (output,) = session.execute(there_and_back(x, array)).outputs
    assert ran(sharing_fake) == SHARED
    assert output.dtype == np.float32 and not output.flags.writeable
    np.testing.assert_array_equal(output, array)
    small = session.create_buffer(shape=(8,), dtype="f32")
    np.testing.assert_array_equal(
        session.execute(there_and_back(small, np.arange(8))).outputs[0], np.arange(8)
    )
    assert ran(sharing_fake) == SENT


def test_a_program_that_comes_again_is_the_same_bytes(sharing_fake, session, x, array):
    program = there_and_back(x, array)
    again = session.prepare(program)
    sent = []
    for run in (lambda: session.execute(program), again, again):
        np.testing.assert_array_equal(run()[0], array)
        request = sharing_fake.calls[-1][1]
        sent.append([op.SerializeToString() for op in request.ops])
    assert ran(sharing_fake) == SHARED
    assert sent[0] == sent[1] == sent[2]


def test_outputs_stay_as_long_as_they_are_looked_at(session, x, random):
    arrays = [random.standard_normal((64, 1024), "f4") for _ in range(6)]
    views = [session.execute(there_and_back(x, array)).outputs[0][3:, ::2] for array in arrays]
    del views[2], arrays[2]
    gc.collect()
    arrays.append(arrays[0] + 1)
    views.append(session.matmul(x.tensor(), np.eye(1024, dtype="f4"))[3:, ::2])
    session.execute(there_and_back(x, arrays[-1]))
    for view, array in zip(views[:-1], arrays[:-1], strict=True):
        np.testing.assert_array_equal(view, array[3:, ::2])


def is_free(arena):
    return arena.take(len(arena.memory)) is not None


def test_a_run_keeps_its_memory_until_it_was_answered_or_refused(session, x, array):
    arena = session._take_block(array.nbytes, None).arena
    op = gemmd.write(x, array)
    run = inline.Run(session.sharing, arena.take(array.nbytes), [], [op])
    assert not is_free(arena)
    run.failed(gemmd.ResourceExhausted("full"))
    assert is_free(arena)
    assert session.sharing.arena is arena


def test_a_matmul_of_a_few_mebibytes_is_one_call(sharing_fake, session, random):
    a, b = random.standard_normal((64, 7168), "f4"), session.upload(np.ones((8, 7168), "f4"))
    before = sharing_fake.count(methods.EXECUTE)
    for _ in range(2):
        np.testing.assert_allclose(session.matmul(a, b.T)[:, 0], a.sum(axis=1), rtol=1e-3)
        assert ran(sharing_fake) == SHARED
    transposed = np.asfortranarray(a)
    np.testing.assert_array_equal(session.matmul(transposed, b.T), session.matmul(a, b.T))
    assert sharing_fake.count(methods.EXECUTE) == before + 4


def test_the_memory_grows_with_what_is_kept_up_to_its_most(sharing_fake, session, random):
    array = random.standard_normal(1 << 18, "f4")
    x = session.create_buffer(shape=array.shape, dtype="f32")
    kept, sizes = [], set()
    while len(kept) < 30:
        kept.append(session.execute(there_and_back(x, array + len(kept)))[0])
        if ran(sharing_fake) == SENT:
            break
        (memory,) = (one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
        sizes.add(memory.size_bytes)
    # Each takes its bytes twice, there and back; the last one found no room.
    assert sizes == {inline.MOST_BYTES // 2, inline.MOST_BYTES}
    assert len(kept) == (inline.MOST_BYTES + inline.MOST_BYTES // 2) // (2 * array.nbytes) + 1
    for i, output in enumerate(kept):
        np.testing.assert_array_equal(output, array + i)
    del kept, output
    session.execute(there_and_back(x, array))
    assert ran(sharing_fake) == SHARED


def test_memory_that_cannot_grow_stays(sharing_fake, session, x, array):
    kept = [session.execute(there_and_back(x, array))[0]]
    (first,) = (one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
    sharing_fake.faults.statuses[methods.CREATE_BUFFER] = [Refused("RESOURCE_EXHAUSTED", "full")]
    while ran(sharing_fake) == SHARED:
        kept.append(session.execute(there_and_back(x, array))[0])
    kept.clear()
    session.execute(there_and_back(x, array))
    assert ran(sharing_fake) == SHARED
    (second,) = (one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
    assert (second.buffer_id, second.size_bytes) == (first.buffer_id, 2 << 20)


def test_a_refusal_speaks_of_the_callers_ops(sharing_fake, session, x, array):
    sharing_fake.faults.statuses[methods.EXECUTE] = [
        Refused("INVALID_ARGUMENT", "op 0 (copy): no", "INVALID"),
        Refused("INVALID_ARGUMENT", "op 0 (write): no", "INVALID"),
    ]
    with pytest.raises(gemmd.InvalidArgument, match=r"op 0 \(write\)"):
        session.execute(there_and_back(x, array))
    assert ran(sharing_fake) == SENT
    session.execute(there_and_back(x, array))
    assert ran(sharing_fake) == SHARED


def test_programs_that_only_fare_well_with_their_data_are_not_tried_again(
    sharing_fake, session, x, array
):
    session.execute(there_and_back(x, array))
    sharing_fake.faults.statuses[methods.EXECUTE] = [
        Refused("INVALID_ARGUMENT", "op 1 (copy) writes a buffer on cpu:1", "OTHER_DEVICE")
    ]
    session.execute(there_and_back(x, array))
    before = sharing_fake.count(methods.EXECUTE)
    np.testing.assert_array_equal(session.execute(there_and_back(x, array))[0], array)
    assert ran(sharing_fake) == SENT and sharing_fake.count(methods.EXECUTE) == before + 1


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "INTERNAL", "CANCELLED"])
def test_what_was_not_answered_keeps_its_memory(sharing_fake, session, x, array, code):
    session.execute(there_and_back(x, array))
    (first,) = (one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
    sharing_fake.faults.after_running[methods.EXECUTE] = [Refused(code, "late")]
    with pytest.raises(gemmd.Error, match="late"):
        session.execute(there_and_back(x, array))
    np.testing.assert_array_equal(session.execute(there_and_back(x, array))[0], array)
    assert ran(sharing_fake) == SHARED
    (second,) = (one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
    assert second.buffer_id != first.buffer_id


def test_a_server_that_drains_has_let_go(sharing_fake, session, x, array):
    session.execute(there_and_back(x, array))
    sharing_fake.faults.statuses[methods.EXECUTE] = [Refused("UNAVAILABLE", "soon", "DRAINING")]
    with pytest.raises(gemmd.Unavailable, match="soon"):
        session.execute(there_and_back(x, array))
    (first,) = (one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
    session.execute(there_and_back(x, array))
    assert ran(sharing_fake) == SHARED
    (second,) = (one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
    assert second.buffer_id == first.buffer_id


def test_memory_that_was_deleted_is_made_anew(sharing_fake, session, x, array):
    session.execute(there_and_back(x, array))
    session.delete_buffers(one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
    np.testing.assert_array_equal(session.execute(there_and_back(x, array))[0], array)
    assert ran(sharing_fake) == SENT
    session.execute(there_and_back(x, array))
    assert ran(sharing_fake) == SHARED


def test_it_gives_way_to_the_callers_buffers(sharing_fake, session, x, array):
    session.execute(there_and_back(x, array))
    sharing_fake.faults.statuses[methods.CREATE_BUFFER] = [Refused("RESOURCE_EXHAUSTED", "full")]
    session.create_buffer(4096)
    assert all(one.label != inline.MEMORY_LABEL for one in session.buffers())
    sharing_fake.faults.statuses[methods.CREATE_BUFFER] = [Refused("RESOURCE_EXHAUSTED", "full")]
    with pytest.raises(gemmd.ResourceExhausted, match="full"):
        session.create_buffer(4096)


def test_no_room_for_the_memory_is_no_failure(sharing_fake, session, x, array):
    sharing_fake.faults.statuses[methods.CREATE_BUFFER] = [Refused("RESOURCE_EXHAUSTED", "full")]
    for _ in range(2):
        np.testing.assert_array_equal(session.execute(there_and_back(x, array))[0], array)
        assert ran(sharing_fake) == SENT
    assert sharing_fake.count(methods.CREATE_BUFFER) == 2  # x, and one try


def test_memory_that_cannot_be_mapped_is_no_failure(sharing_fake, session, x, array):
    refusal = Refused("FAILED_PRECONDITION", "no sharing today", "NOT_SHARED")
    sharing_fake.faults.statuses[methods.EXPORT_BUFFER] = [refusal]
    np.testing.assert_array_equal(session.execute(there_and_back(x, array))[0], array)
    assert ran(sharing_fake) == SENT


@pytest.mark.parametrize("shared_memory", ["off", "auto"])
def test_without_shared_memory_it_is_sent(fake, array, shared_memory):
    with (
        gemmd.Client(fake.target, timeout_s=20, retry=QUICK) as client,
        client.session(shared_memory=shared_memory) as session,
    ):
        x = session.create_buffer(shape=(64, 1024), dtype="f32")
        np.testing.assert_array_equal(session.execute(there_and_back(x, array))[0], array)
        assert ran(fake) == SENT


def test_the_asyncio_session_shares_too(sharing_fake, array):
    async def work():
        async with (
            gemmd.aio.Client(sharing_fake.target, timeout_s=20, retry=QUICK) as client,
            client.session() as session,
        ):
            x = await session.create_buffer(shape=(64, 1024), dtype="f32")
            program = there_and_back(x, array)
            results = await asyncio.gather(*(session.execute(program) for _ in range(3)))
            for result in results:
                np.testing.assert_array_equal(result[0], array)
            assert ran(sharing_fake) == SHARED
            (first,) = [o for o in await session.buffers() if o.label == inline.MEMORY_LABEL]
            sharing_fake.faults.after_running[methods.EXECUTE] = [Refused("INTERNAL", "late")]
            with pytest.raises(gemmd.Error, match="late"):
                await session.execute(program)
            await session.prepare(program)()
            assert ran(sharing_fake) == SHARED
            (second,) = [o for o in await session.buffers() if o.label == inline.MEMORY_LABEL]
            assert first.buffer_id != second.buffer_id
            # A call that is given up leaves its memory to the server, too.
            task = asyncio.create_task(session.execute(program))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            np.testing.assert_array_equal((await session.execute(program))[0], array)
            assert ran(sharing_fake) == SHARED

    asyncio.run(work())
