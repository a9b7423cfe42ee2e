import gc
import weakref

import numpy as np
import pytest

import gemmd
from gemmd._wire import methods

from .fake.machine import Refused


@pytest.fixture
def counter(session):
    """A program that is not idempotent: each run adds one."""
    total = session.create_buffer(shape=(1, 1), dtype="f32")
    one = session.upload(np.ones((1, 1), "f4"))
    return [gemmd.matmul(one, one, total, c=total, beta=1.0), gemmd.read(total)]


def test_execute_is_retried_after_a_broken_connection(fake, session, counter):
    fake.fail(methods.EXECUTE, "UNAVAILABLE", "connection reset", times=2)
    assert session.execute(counter)[0].item() == 1
    assert fake.count(methods.EXECUTE) == 3


def test_a_retry_of_work_that_ran_already_gets_the_first_result(fake, session, counter):
    fake.faults.after_running[methods.EXECUTE] = [Refused("UNAVAILABLE", "connection reset")]
    result = session.execute(counter)
    assert result[0].item() == 1
    assert result.replayed
    assert fake.runs == 1


def test_a_plan_run_is_retried_with_the_same_op_id(fake, session, counter):
    plan = session.plan(counter)
    fake.faults.after_running[methods.RUN_PLAN] = [Refused("UNAVAILABLE", "connection reset")]
    assert plan.run()[0].item() == 1
    assert plan.run()[0].item() == 2
    ids = [request.op_id for name, request in fake.calls if name == methods.RUN_PLAN]
    assert ids[0] == ids[1] != ids[2]


def test_attempts_end(fake, session, counter):
    fake.fail(methods.EXECUTE, "UNAVAILABLE", "connection reset", times=10)
    with pytest.raises(gemmd.Unavailable, match="connection reset"):
        session.execute(counter)
    assert fake.count(methods.EXECUTE) == 4


def test_a_draining_server_is_not_asked_again(fake, session, counter):
    fake.fail(methods.EXECUTE, "UNAVAILABLE", "draining", "DRAINING")
    with pytest.raises(gemmd.Unavailable) as caught:
        session.execute(counter)
    assert caught.value.reason == "DRAINING"
    assert fake.count(methods.EXECUTE) == 1


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"])
def test_what_would_fail_again_is_not_retried(fake, session, counter, code):
    fake.fail(methods.EXECUTE, code, "no")
    with pytest.raises(gemmd.Error):
        session.execute(counter)
    assert fake.count(methods.EXECUTE) == 1


def test_creating_a_buffer_is_not_retried_because_it_could_make_two(fake, session):
    fake.fail(methods.CREATE_BUFFER, "UNAVAILABLE", "connection reset")
    with pytest.raises(gemmd.Unavailable):
        session.create_buffer(16)
    assert fake.count(methods.CREATE_BUFFER) == 1


def test_no_server_is_unavailable(tmp_path):
    retry = gemmd.Retry(attempts=1)
    with gemmd.Client(f"unix:{tmp_path}/nobody.sock", retry=retry) as client:
        with pytest.raises(gemmd.Unavailable):
            client.info()
        with pytest.raises(gemmd.Unavailable, match="no connection"):
            client.wait_ready(0.05)


def test_a_wait_grows_to_the_longest_and_there_is_one_for_each_further_attempt():
    waits = list(gemmd.Retry(attempts=6, first_delay_s=1, longest_delay_s=4).delays())
    assert len(waits) == 5
    for wait, most in zip(waits, [1, 2, 4, 4, 4], strict=True):
        assert most / 2 <= wait <= most


class Local:
    """What a caller has at hand: with a weak reference, unlike an array of numpy's own."""


@pytest.mark.parametrize("code", ["NOT_FOUND", "UNAVAILABLE"])
@pytest.mark.parametrize(
    "method, call",
    [
        (methods.FIND_BUFFER, lambda session, x: session.find("w")),
        (methods.EXECUTE, lambda session, x: session.execute([gemmd.read(x)])),
        (methods.CREATE_PLAN, lambda session, x: session.plan([gemmd.read(x)])),
        (methods.CREATE_BUFFER, lambda session, x: session.create_buffer(64)),
        (methods.UPLOAD, lambda session, x: x.upload(np.ones(16, "f4"))),
    ],
)
def test_a_failed_call_keeps_nothing_of_its_callers(fake, session, method, call, code):
    x = session.create_buffer(shape=(16,), dtype="f32")

    def failing():
        local = Local()
        with pytest.raises(gemmd.Error):
            call(session, x)
        return weakref.ref(local)

    fake.fail(method, code, "refused", times=20)
    gc.disable()
    try:
        assert failing()() is None
    finally:
        gc.enable()
        fake.faults.statuses[method].clear()
