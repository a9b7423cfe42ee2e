"""Data of plans' runs: by a twin of the plan in shared memory where it can be, else in messages."""

import asyncio
import threading

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd import inline, methods, twins

from .conftest import QUICK
from .fake.machine import Refused

SHARED, SENT = ["copy", "copy"], ["write", "read"]


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
    return [op.op for op in result.report.ops]


def is_free(arena):
    return arena.take_at(0, len(arena.memory)) is not None


def memory_of(session):
    (found,) = (one for one in session.buffers() if one.label == inline.MEMORY_LABEL)
    return found


def test_much_data_is_shared_and_little_is_sent(sharing_fake, session, plan, array):
    result = plan.run(inputs=[array])
    assert kinds(result) == SHARED
    assert not sharing_fake.calls[-1][1].run.inputs
    assert result[0].dtype == np.float32 and not result[0].flags.writeable
    np.testing.assert_array_equal(result[0], array)
    assert plan.kernels == ("fake_write", "fake_read")
    made = [request for method, request in sharing_fake.calls if method == methods.CREATE_PLAN]
    assert [request.label for request in made] == ["there and back"] * 2
    little = session.plan(there_and_back(session.create_buffer(shape=(8,), dtype="f32")))
    assert kinds(little.run(inputs=[np.arange(8)])) == SENT
    assert sharing_fake.count(methods.CREATE_PLAN) == 3


def test_runs_one_after_the_other_have_one_twin(sharing_fake, plan, array):
    for i in range(5):
        np.testing.assert_array_equal(plan.run(inputs=[array + i])[0], array + i)
    assert sharing_fake.count(methods.CREATE_PLAN) == 2
    assert sharing_fake.count(methods.RUN_PLAN) == 5


def test_what_the_ops_were_made_with_is_not_sent_again(sharing_fake, session, x, plan, array):
    np.testing.assert_array_equal(plan.run()[0], np.ones(x.shape))
    assert kinds(plan.run()) == SENT
    assert sharing_fake.count(methods.CREATE_PLAN) == 1
    x.upload(array)
    for inputs in (None, []):
        result = session.plan([gemmd.read(x)]).run(inputs=inputs)
        assert kinds(result) == ["copy"]
        np.testing.assert_array_equal(result[0], array)


def test_inputs_are_converted_as_in_messages(session, random):
    half = session.create_buffer(shape=(64, 1024), dtype="bf16")
    x = session.create_buffer(shape=(2, 3), dtype="f32")
    ops = [gemmd.write(half, np.zeros((64, 1024))), gemmd.write(x, np.zeros((2, 3)))]
    plan = session.plan([*ops, gemmd.read(x), gemmd.read(half)])
    array = np.asfortranarray(random.standard_normal((64, 1024)))
    result = plan.run(inputs=[array, [[1, 2, 3], [4, 5, 6]]])
    assert kinds(result) == ["copy"] * 4
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
    kept, ways, sizes = [], [], []
    for i in range(8):
        result = plan.run(inputs=[array + i])
        kept.append(result[0][3:, ::2])
        ways.append(kinds(result))
        sizes.append(memory_of(session).size_bytes)
    # Four times what one run needs are shared at first; what goes in messages makes it no more.
    assert ways == [SHARED] * twins.MOST_OF_A_PLAN + [SENT] * 4
    assert set(sizes) == {4 * 2 * array.nbytes}
    for i, view in enumerate(kept):
        np.testing.assert_array_equal(view, (array + i)[3:, ::2])
    made = sharing_fake.count(methods.CREATE_PLAN)
    del kept, view, result
    for _ in range(3):
        assert kinds(plan.run(inputs=[array])) == SHARED
    assert sharing_fake.count(methods.CREATE_PLAN) == made


def test_a_place_with_a_twin_is_better_than_a_lower_one(sharing_fake, session, x, plan, array):
    kept = session.execute(there_and_back(x))[0]
    plan.run(inputs=[array])
    assert sharing_fake.count(methods.CREATE_PLAN) == 2
    del kept
    assert kinds(plan.run(inputs=[array])) == SHARED
    assert sharing_fake.count(methods.CREATE_PLAN) == 2


def test_threads_have_twins_of_their_own(sharing_fake, session, x, plan, array):
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
    assert len(sharing_fake.plans) <= 1 + twins.MOST_OF_A_PLAN


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "INTERNAL"])
def test_a_plan_whose_twin_is_refused_has_none(sharing_fake, plan, array, code):
    sharing_fake.fail(methods.CREATE_PLAN, code, "no more of them")
    for _ in range(2):
        result = plan.run(inputs=[array])
        assert kinds(result) == SENT
        np.testing.assert_array_equal(result[0], array)
    assert plan.why_no_twins == "no more of them"
    assert sharing_fake.count(methods.CREATE_PLAN) == 2


def test_a_twin_that_could_not_be_made_just_now_is_made_later(sharing_fake, plan, array):
    sharing_fake.fail(methods.CREATE_PLAN, "UNAVAILABLE", "busy")
    assert kinds(plan.run(inputs=[array])) == SENT
    sharing_fake.fail(methods.CREATE_PLAN, "DEADLINE_EXCEEDED", "late")
    with pytest.raises(gemmd.DeadlineExceeded, match="late"):
        plan.run(inputs=[array])
    plan.twin_failed(gemmd.NotFound("buffer 7 is gone"), arena_is_gone=True)
    assert kinds(plan.run(inputs=[array])) == SHARED


def test_a_refusal_speaks_of_the_callers_ops(sharing_fake, plan, array):
    sharing_fake.faults.statuses[methods.RUN_PLAN] = [
        Refused("INVALID_ARGUMENT", "op 0 (copy): no", "INVALID"),
        Refused("INVALID_ARGUMENT", "op 0 (write): no", "INVALID"),
    ]
    with pytest.raises(gemmd.InvalidArgument, match=r"op 0 \(write\)"):
        plan.run(inputs=[array])
    assert kinds(plan.run(inputs=[array])) == SHARED


def test_a_plan_that_only_fares_well_with_its_data_has_no_twins(
    sharing_fake, session, x, plan, array
):
    sharing_fake.fail(methods.RUN_PLAN, "INVALID_ARGUMENT", "op 1 (copy) writes on cpu:1")
    assert kinds(plan.run(inputs=[array])) == SENT
    before = sharing_fake.count(methods.RUN_PLAN)
    assert kinds(plan.run(inputs=[array])) == SENT
    assert sharing_fake.count(methods.RUN_PLAN) == before + 1
    assert plan.why_no_twins == "op 1 (copy) writes on cpu:1"
    assert is_free(session.sharing.arena)
    assert kinds(session.execute(there_and_back(x))) == SHARED


def test_a_twin_that_is_gone_is_made_anew(sharing_fake, plan, array):
    plan.run(inputs=[array])
    (gone,) = sharing_fake.plans.keys() - {plan.plan_id}
    del sharing_fake.plans[gone]
    result = plan.run(inputs=[array])
    assert kinds(result) == SENT
    np.testing.assert_array_equal(result[0], array)
    assert kinds(plan.run(inputs=[array])) == SHARED
    assert not plan.why_no_twins


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
    assert len(sharing_fake.plans) == 2  # the first twin went with its memory


def test_a_plan_takes_its_twins_along(sharing_fake, session, x, array):
    with session.plan(there_and_back(x)) as plan:
        kept = [plan.run(inputs=[array])[0] for _ in range(3)]
        assert len(sharing_fake.plans) == 4
    assert not sharing_fake.plans
    del kept
    assert [one.label for one in session.buffers()] == ["", inline.MEMORY_LABEL]
    assert is_free(session.sharing.arena)
    with pytest.raises(gemmd.NotFound):
        plan.run(inputs=[array])
    assert sharing_fake.count(methods.CREATE_PLAN) == 4


def test_a_plan_may_leave_a_twin_behind_but_not_itself(sharing_fake, plan, array):
    plan.run(inputs=[array])
    sharing_fake.fail(methods.DELETE_PLAN, "INTERNAL", "oops", times=2)
    with pytest.raises(gemmd.Internal, match="oops"):
        plan.delete()
    np.testing.assert_array_equal(plan.run(inputs=[array])[0], array)
    plan.delete()
    assert len(sharing_fake.plans) == 1


def test_twins_give_way_to_the_callers_plans(sharing_fake, session, x, plan, array):
    plan.run(inputs=[array])
    sharing_fake.fail(methods.CREATE_PLAN, "RESOURCE_EXHAUSTED", "full")
    other = session.plan(there_and_back(x))
    assert set(sharing_fake.plans) == {plan.plan_id, other.plan_id}
    sharing_fake.fail(methods.CREATE_PLAN, "RESOURCE_EXHAUSTED", "full")
    with pytest.raises(gemmd.ResourceExhausted, match="full"):
        session.plan(there_and_back(x))
    assert kinds(plan.run(inputs=[array])) == SHARED


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


def test_asyncio_plans_have_twins_too(sharing_fake, array):
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
                await asyncio.sleep(0)  # until then asyncio itself keeps what was gathered
                assert sharing_fake.count(methods.CREATE_PLAN) == 4
                assert kinds(await plan.run(inputs=[array])) == SHARED
                assert sharing_fake.count(methods.CREATE_PLAN) == 4
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
                assert plan.why_no_twins == "no copies"
            assert not sharing_fake.plans
            plan = await session.plan(there_and_back(x))
            sharing_fake.fail(methods.CREATE_PLAN, "RESOURCE_EXHAUSTED", "full")
            assert kinds(await plan.run(inputs=[array])) == SENT
            assert plan.why_no_twins == "full"
            other = await session.plan(there_and_back(x))
            await other.run(inputs=[array])
            sharing_fake.fail(methods.CREATE_PLAN, "RESOURCE_EXHAUSTED", "full")
            await session.plan(there_and_back(x))
            assert len(sharing_fake.plans) == 3

    asyncio.run(work())


def test_asyncio_runs_without_a_twin_take_no_memory(sharing_fake, array):
    async def work():
        async with (
            gemmd.aio.Client(sharing_fake.target, timeout_s=20, retry=QUICK) as client,
            client.session() as session,
        ):
            x = await session.create_buffer(shape=array.shape, dtype="f32")
            async with await session.plan(there_and_back(x)) as plan:
                kept = [await plan.run(inputs=[array]) for _ in range(6)]
                ways = [kinds(one) for one in kept]
                assert ways == [SHARED] * twins.MOST_OF_A_PLAN + [SENT] * 2
                (memory,) = (
                    one for one in await session.buffers() if one.label == inline.MEMORY_LABEL
                )
                assert memory.size_bytes == 4 * 2 * array.nbytes

    asyncio.run(work())
