"""Data of plans' runs through memory shared with a real daemon."""

import asyncio
import threading

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd._memory import inline

pytestmark = pytest.mark.e2e


def kinds(result):
    """ "write" and "read" in messages, "copy" through shared memory: of the kernels that ran."""
    return [op.kernel.removeprefix("cpu_").removeprefix("cuda_") for op in result.report.ops]


def known(session):
    """What the daemon says of the session."""
    (found,) = (one for one in session.client.sessions() if one.name == session.name)
    return found


def product(session, w):
    """A plan of x @ w.T that reads x, too, and x."""
    x = session.create_buffer(shape=(96, 512), dtype="bf16")
    y = session.create_buffer(shape=(96, 256), dtype="f32")
    ops = [gemmd.write(x, np.zeros(x.shape)), gemmd.matmul(x, session.upload(w), y)]
    return session.plan([*ops, gemmd.read(y), gemmd.read(x)]), x


def there_and_back(x):
    return [gemmd.write(x, np.zeros(x.shape)), gemmd.read(x)]


def test_runs_of_both_ways_give_the_same_bytes(session, random):
    w = random.standard_normal((256, 512), "f4").astype(gemmd.bfloat16)
    arrays = [random.standard_normal((96, 512), "f4") for _ in range(3)]
    plan, x = product(session, w)
    other_x = session.create_buffer(shape=x.shape, dtype=x.dtype)
    shared = [
        plan.run(rebind, [array]) for array in arrays for rebind in (None, {x: other_x})
    ]  # all are kept
    with session.client.session(shared_memory="off") as other:
        sending, x = product(other, w)
        other_x = other.create_buffer(shape=x.shape, dtype=x.dtype)
        sent = [sending.run(rebind, [array]) for array in arrays for rebind in (None, {x: other_x})]
        assert known(other).plans == 1
    assert [op.op for op in shared[0].report.ops] == ["write", "matmul", "read", "read"]
    assert kinds(shared[0])[0] == kinds(shared[0])[3] == "copy"
    assert {kinds(result)[0] for result in sent} == {"write"}
    for one, two in zip(shared, sent, strict=True):
        for output, same in zip(one.outputs, two.outputs, strict=True):
            np.testing.assert_array_equal(output.view("u1"), same.view("u1"))


def test_asyncio_runs_give_the_same_bytes(address, session, random):
    w = random.standard_normal((256, 512), "f4").astype(gemmd.bfloat16)
    arrays = [random.standard_normal((96, 512), "f4") for _ in range(4)]
    expected = [product(session, w)[0].run(inputs=[array]).outputs for array in arrays]

    async def scenario():
        async with gemmd.aio.Client(address) as client, client.session() as session:
            places = []
            for _ in arrays:
                x = await session.create_buffer(shape=(96, 512), dtype="bf16")
                places.append((x, await session.create_buffer(shape=(96, 256), dtype="f32")))
            (x, y), weights = places[0], await session.upload(w)
            ops = [gemmd.write(x, np.zeros(x.shape)), gemmd.matmul(x, weights, y)]
            async with await session.plan([*ops, gemmd.read(y), gemmd.read(x)]) as plan:
                for _ in range(5):
                    runs = (
                        plan.run({x: own[0], y: own[1]}, [array])
                        for array, own in zip(arrays, places, strict=True)
                    )
                    results = await asyncio.gather(*runs)
                    for result, outputs in zip(results, expected, strict=True):
                        for output, same in zip(result.outputs, outputs, strict=True):
                            np.testing.assert_array_equal(output.view("u1"), same.view("u1"))
                assert kinds(results[0])[0] == "copy"
            (found,) = [one for one in await client.sessions() if one.name == session.name]
            assert found.plans == 0

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_runs_one_after_the_other_take_no_more_plans(session, x, array):
    plan = session.plan(there_and_back(x))
    for i in range(20):
        np.testing.assert_array_equal(plan.run(inputs=[array + i])[0], array + i)
    assert known(session).plans == 1


def test_outputs_stay_as_they_were(session, x, array):
    plan = session.plan(there_and_back(x))
    kept = [plan.run(inputs=[array + i])[0] for i in range(12)]
    for i, output in enumerate(kept):
        np.testing.assert_array_equal(output, array + i)
    assert known(session).plans == 1


def test_what_the_ops_were_made_with_is_not_sent_again(session, x, array):
    plan = session.plan([gemmd.write(x, array), gemmd.read(x)])
    result = plan.run()
    assert kinds(result) == ["write", "read"]
    np.testing.assert_array_equal(result[0], array)
    reading = session.plan([gemmd.read(x)]).run()
    assert kinds(reading) == ["copy"]
    np.testing.assert_array_equal(reading[0], array)


def test_wrong_inputs_and_buffers_are_refused_as_in_messages(session, x, array):
    plan = session.plan(there_and_back(x))
    with pytest.raises(ValueError, match="2 inputs for a plan with 1 write"):
        plan.run(inputs=[array, array])
    with pytest.raises(ValueError, match="data has shape"):
        plan.run(inputs=[array[1:]])
    with pytest.raises(gemmd.InvalidArgument):
        plan.run({x: session.create_buffer(16)}, [array])
    assert kinds(plan.run(inputs=[array])) == ["copy", "copy"]


def test_many_threads_run_one_plan(session, x, array):
    plan, failures = session.plan(there_and_back(x)), []

    def work(first):
        own = session.create_buffer(shape=x.shape, dtype="f32")
        for i in range(first, first + 25):
            if not np.array_equal(plan.run({x: own}, [array + np.float32(i)])[0], array + i):
                failures.append(i)

    threads = [threading.Thread(target=work, args=(25 * i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_plan_leaves_nothing(session, x, array):
    with session.plan(there_and_back(x)) as plan:
        kept = [plan.run(inputs=[array])[0] for _ in range(3)]
        assert known(session).plans == 1
    assert known(session).plans == 0
    assert [one.label for one in session.buffers()] == ["", inline.MEMORY_LABEL]
    np.testing.assert_array_equal(kept[0], array)
    with pytest.raises(gemmd.NotFound):
        plan.run(inputs=[array])
