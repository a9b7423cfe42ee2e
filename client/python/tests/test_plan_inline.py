"""Data of plans' runs: in shared memory where it can be, else in messages."""

import asyncio
import threading

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd._memory import inline
from gemmd._wire import methods

from .conftest import QUICK
from .fake.machine import Refused

SHARED, SENT = ["fake_copy"] * 2, ["fake_write", "fake_read"]


@pytest.fixture
def client(sharing_fake):
    with gemmd.Client(sharing_fake.target, timeout_s=20, retry=QUICK) as client:
        yield client


@pytest.fixture
def plan(session, x):
    return session.plan(there_and_back(x), label="there and back")


def there_and_back(x):
    return [gemmd.write(x, np.ones(x.shape, "f4")), gemmd.read(x)]


def kinds(result):
    return [op.kernel for op in result.report.ops]


def is_free(arena):
    return arena.take(len(arena.memory)) is not None


def memory_of(session):
    (found,) = (one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
    return found


def test_much_data_is_shared_and_little_is_sent(sharing_fake, session, plan, array):
    result = plan.run(inputs=[array])
    assert kinds(result) == SHARED
    assert not sharing_fake.calls[-1][1].run.inputs
    assert result[0].dtype == np.float32 and not result[0].flags.writeable
    np.testing.assert_array_equal(result[0], array)
    assert [op.op for op in result.report.ops] == ["write", "read"]  # the caller's own
    assert plan.kernels == ("fake_write", "fake_read")
    little = session.plan(there_and_back(session.create_buffer(shape=(8,), dtype="f32")))
    assert kinds(little.run(inputs=[np.arange(8)])) == SENT
    assert sharing_fake.count(methods.CREATE_PLAN) == 2


def test_what_the_ops_were_made_with_is_not_sent_again(sharing_fake, session, x, plan, array):
    np.testing.assert_array_equal(plan.run()[0], np.ones(x.shape))
    assert kinds(plan.run()) == SENT
    assert sharing_fake.count(methods.CREATE_PLAN) == 1
    x.upload(array)
    for inputs in (None, []):
        result = session.plan([gemmd.read(x)]).run(inputs=inputs)
        assert kinds(result) == ["fake_copy"]
        np.testing.assert_array_equal(result[0], array)


def test_inputs_are_converted_as_in_messages(session, random):
    half = session.create_buffer(shape=(64, 1024), dtype="bf16")
    x = session.create_buffer(shape=(2, 3), dtype="f32")
    ops = [gemmd.write(half, np.zeros((64, 1024))), gemmd.write(x, np.zeros((2, 3)))]
    plan = session.plan([*ops, gemmd.read(x), gemmd.read(half)])
    array = np.asfortranarray(random.standard_normal((64, 1024)))
    result = plan.run(inputs=[array, [[1, 2, 3], [4, 5, 6]]])
    assert kinds(result) == ["fake_copy"] * 4
    np.testing.assert_array_equal(result[0], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(result[1], array.astype(gemmd.bfloat16))


def test_wrong_inputs_are_refused_as_in_messages(sharing_fake, client, plan, array):
    with client.session(shared_memory="off") as other:
        x = other.create_buffer(shape=(64, 1024), dtype="f32")
        sending = other.plan(there_and_back(x))
        before = len(sharing_fake.calls)
        for wrong in ([], [array, array], [array.T], [array[0]]):
            said = []
            for one in (plan, sending):
                with pytest.raises(ValueError) as caught:
                    one.run(inputs=wrong)
                said.append(str(caught.value))
            assert said[0] == said[1]
        assert len(sharing_fake.calls) == before


def test_other_buffers_take_the_place_of_the_plans(session, x, plan, array):
    y = session.create_buffer(shape=x.shape, dtype="f32")
    for i in range(2):
        result = plan.run(rebind={x: y}, inputs=[array + i])
        assert kinds(result) == SHARED
        np.testing.assert_array_equal(result[0], array + i)
    assert not x.download().any()
    np.testing.assert_array_equal(y.download(), array + 1)


def test_outputs_stay_as_long_as_they_are_looked_at(sharing_fake, session, plan, array):
    kept = []
    for i in range(8):
        result = plan.run(inputs=[array + i])
        assert kinds(result) == SHARED
        kept.append(result[0][3:, ::2])
    for i, view in enumerate(kept):
        np.testing.assert_array_equal(view, (array + i)[3:, ::2])
    size = memory_of(session).size_bytes
    del kept, view, result
    for _ in range(20):
        assert kinds(plan.run(inputs=[array])) == SHARED
    assert memory_of(session).size_bytes == size
    assert sharing_fake.count(methods.CREATE_PLAN) == 1


def test_threads_have_places_of_their_own(sharing_fake, session, x, plan, array):
    buffers = [session.create_buffer(shape=x.shape, dtype="f32") for _ in range(6)]
    failures = []

    def work(own, first):
        for i in range(first, first + 10):
            if not np.array_equal(plan.run({x: own}, [array + np.float32(i)])[0], array + i):
                failures.append(i)

    threads = [threading.Thread(target=work, args=(own, 10 * i)) for i, own in enumerate(buffers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(sharing_fake.plans) == 1


def test_a_refusal_speaks_of_the_callers_ops(sharing_fake, plan, array):
    sharing_fake.faults.statuses[methods.RUN_PLAN] = [
        Refused("INVALID_ARGUMENT", "op 0 (copy): no", "INVALID"),
        Refused("INVALID_ARGUMENT", "op 0 (write): no", "INVALID"),
    ]
    with pytest.raises(gemmd.InvalidArgument, match=r"op 0 \(write\)"):
        plan.run(inputs=[array])
    assert kinds(plan.run(inputs=[array])) == SHARED


def test_a_plan_that_only_fares_well_with_its_data_sends_it(sharing_fake, session, x, plan, array):
    sharing_fake.fail(methods.RUN_PLAN, "INVALID_ARGUMENT", "op 1 (copy) writes on cpu:1")
    assert kinds(plan.run(inputs=[array])) == SENT
    before = sharing_fake.count(methods.RUN_PLAN)
    assert kinds(plan.run(inputs=[array])) == SENT
    assert sharing_fake.count(methods.RUN_PLAN) == before + 1
    assert session.sharing.why_not == "op 1 (copy) writes on cpu:1"
    assert kinds(session.execute(there_and_back(x))) == SENT


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "INTERNAL", "CANCELLED"])
def test_what_was_not_answered_keeps_its_memory(sharing_fake, session, plan, array, code):
    plan.run(inputs=[array])
    first = memory_of(session).buffer_id
    sharing_fake.faults.after_running[methods.RUN_PLAN] = [Refused(code, "late")]
    with pytest.raises(gemmd.Error, match="late"):
        plan.run(inputs=[array])
    result = plan.run(inputs=[array])
    assert kinds(result) == SHARED
    np.testing.assert_array_equal(result[0], array)
    assert memory_of(session).buffer_id != first


def test_a_plan_leaves_its_memory_free(sharing_fake, session, x, array):
    with session.plan(there_and_back(x)) as plan:
        kept = [plan.run(inputs=[array])[0] for _ in range(3)]
        assert len(sharing_fake.plans) == 1
    assert not sharing_fake.plans
    del kept
    assert [one.label for one in session.buffers()] == ["", inline.MEMORY_LABEL]
    assert is_free(session.sharing.arena)
    with pytest.raises(gemmd.NotFound):
        plan.run(inputs=[array])


def test_queues_send_their_data(sharing_fake, session, plan, array):
    with session.queue() as queue:
        result = queue.submit(plan, inputs=[array]).result()
    assert kinds(result) == SENT
    assert sharing_fake.count(methods.CREATE_PLAN) == 1


@pytest.mark.parametrize("shared_memory", ["off", "auto"])
def test_without_shared_memory_it_is_sent(fake, array, shared_memory):
    with (
        gemmd.Client(fake.target, timeout_s=20, retry=QUICK) as client,
        client.session(shared_memory=shared_memory) as session,
    ):
        plan = session.plan(there_and_back(session.create_buffer(shape=(64, 1024), dtype="f32")))
        np.testing.assert_array_equal(plan.run(inputs=[array])[0], array)
        assert fake.count(methods.CREATE_PLAN) == 1


def test_asyncio_plans_share_too(sharing_fake, array):
    async def work():
        async with (
            gemmd.aio.Client(sharing_fake.target, timeout_s=20, retry=QUICK) as client,
            client.session() as session,
        ):
            x = await session.create_buffer(shape=(64, 1024), dtype="f32")
            async with await session.plan(there_and_back(x)) as plan:
                runs = (plan.run(inputs=[array + i]) for i in range(3))
                for i, result in enumerate(await asyncio.gather(*runs)):
                    assert kinds(result) == SHARED
                    np.testing.assert_array_equal(result[0], array + i)
                with pytest.raises(ValueError, match="2 inputs for a plan with 1 write"):
                    await plan.run(inputs=[array, array])
                # A run that is given up leaves its memory to the server.
                task = asyncio.create_task(plan.run(inputs=[array]))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                np.testing.assert_array_equal((await plan.run(inputs=[array]))[0], array)
                sharing_fake.fail(methods.RUN_PLAN, "INVALID_ARGUMENT", "no copies")
                assert kinds(await plan.run(inputs=[array])) == SENT
                assert session.sharing.why_not == "no copies"
            assert not sharing_fake.plans
            assert sharing_fake.count(methods.CREATE_PLAN) == 1

    asyncio.run(work())
