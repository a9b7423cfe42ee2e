import gc
import subprocess
import sys
import threading
import time

import grpc
import numpy as np
import pytest

import gemmd
from gemmd._wire import methods

from .conftest import QUICK
from .fake.machine import Refused


def eventually(condition, seconds=60.0):
    """Waits for what another thread is about to do."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


def test_a_session_is_held_while_it_lives_and_closed_once(fake, client):
    with client.session(ttl_s=2.5) as session:
        assert fake.count(methods.HOLD) == 1
        assert session.ttl_s == 2.5
        session.close()
    assert fake.count(methods.CLOSE_SESSION) == 1


def gone(fake):
    """As a daemon that was started anew: it knows no session of before."""
    for method in (methods.CLOSE_SESSION, methods.DELETE_BUFFERS, methods.DELETE_PLAN):
        fake.fail(method, "NOT_FOUND", "the session does not exist", "SESSION_GONE", times=10)


def test_what_is_gone_with_its_session_is_closed_without_an_error(fake, client):
    with (
        client.session() as session,
        gemmd.Linear(session, np.ones((4, 8), "f4"), quantize=None) as layer,
        pytest.raises(ZeroDivisionError),
    ):
        layer(np.ones((2, 8), "f4"))
        gone(fake)
        raise ZeroDivisionError  # the caller's own


def test_a_broken_connection_is_explained(fake, client):
    with client.session(hold=False) as session:
        fake.fail(methods.KEEP_ALIVE, "UNAVAILABLE", "Socket closed", times=10)
        with pytest.raises(gemmd.Unavailable, match=r"Socket closed: .* broke, .* open a session"):
            session.keep_alive()


def test_a_session_without_hold_is_kept_alive_by_calls(fake, client):
    with client.session(hold=False) as session:
        session.keep_alive()
        assert not session.draining
    assert (fake.count(methods.HOLD), fake.count(methods.KEEP_ALIVE)) == (0, 1)


def test_a_held_session_hears_that_the_server_drains(fake, client, monkeypatch):
    monkeypatch.setattr("gemmd.hold.HEARTBEAT_S", 0.02)
    with client.session() as session:
        assert not session.draining
        fake.drain.set()
        assert eventually(lambda: session.draining)


def test_a_heartbeat_outlives_failures_and_ends_with_its_session(fake, client, monkeypatch):
    monkeypatch.setattr("gemmd.hold.HEARTBEAT_S", 0.01)
    with client.session():
        fake.fail(methods.GET_SERVER_INFO, "INTERNAL", times=2)
        assert eventually(lambda: fake.count(methods.GET_SERVER_INFO) >= 4)

    def beating():
        return [thread for thread in threading.enumerate() if thread.name == "gemmd-hold"]

    assert eventually(lambda: not beating())

    with gemmd.Client(fake.target) as closed:
        closed.session()  # is not closed
        assert beating()
    assert eventually(lambda: not beating())


def test_a_stream_that_breaks_is_opened_anew(fake, client, monkeypatch):
    monkeypatch.setattr("gemmd.hold.HEARTBEAT_S", 0.02)
    with client.session():
        fake.cut_hold.set()
        assert eventually(lambda: fake.count(methods.HOLD) == 2 and fake.held)


def test_the_heartbeat_of_a_session_that_has_ended_ends(fake, client, monkeypatch):
    monkeypatch.setattr("gemmd.hold.HEARTBEAT_S", 0.02)
    session = client.session()
    fake.sessions.clear()
    assert eventually(lambda: "gemmd-hold" not in [one.name for one in threading.enumerate()])
    session.close()


def test_a_session_that_is_dropped_is_closed_and_says_so(fake, client, random):
    a = random.standard_normal((200, 200), "f4")

    def use():
        session = client.session()
        large = session.upload(a)
        session.matmul(a, a), session.matmul(a, large)
        assert np.array_equal(large.download(), a)
        return session

    gc.disable()  # no cycle keeps it
    try:
        session = use()
        with pytest.warns(ResourceWarning, match=r"unclosed Session\(.*`with`"):
            del session
    finally:
        gc.enable()
    assert eventually(lambda: not fake.sessions)
    assert fake.count(methods.CLOSE_SESSION) == 1


def test_a_session_is_dropped_when_nothing_of_it_is_left(fake, client):
    buffer = client.session().create_buffer(64)
    gc.collect()
    assert fake.sessions
    with pytest.warns(ResourceWarning, match="unclosed"):
        del buffer
        gc.collect()
    assert eventually(lambda: not fake.sessions)


@pytest.mark.filterwarnings("error")
def test_what_is_closed_or_not_held_or_has_no_client_is_not_warned_of(fake):
    with gemmd.Client(fake.target, timeout_s=20) as client:
        with client.session():
            pass
        client.session(hold=False)  # its ttl ends it
        with pytest.raises(ValueError, match="shared_memory"):
            client.session(shared_memory="perhaps")
        session = client.session()
    del session  # its stream went with the connection
    gc.collect()


DROPPED_AT_EXIT = """
import sys, gemmd
session = gemmd.Client(sys.argv[1]).session()
layer = [session]
layer.append(layer)
print("end", flush=True)
"""


def test_a_program_that_closes_nothing_ends(fake):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", DROPPED_AT_EXIT, fake.target],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_options_of_a_session_reach_the_server(fake, client):
    client.session(ttl_s=1.25, label="me", device="cpu:0", grace_s=0.5, hold=False).close()
    request = next(request for name, request in fake.calls if name == methods.OPEN_SESSION)
    assert (request.ttl.seconds, request.ttl.nanos) == (1, 250_000_000)
    assert (request.label, request.device, request.grace.nanos) == ("me", "cpu:0", 500_000_000)


def test_buffers_are_listed_over_pages_and_deleted(session):
    made = [session.create_buffer(shape=4, dtype="f16", label=f"b{i}") for i in range(5)]
    listed = session.buffers()
    assert [b.label for b in listed] == ["b0", "b1", "b2", "b3", "b4"]
    assert (listed[0].dtype, listed[0].shape) == (np.float16, (4,))
    assert session.delete_buffers(made) == 5 * 8
    with pytest.raises(gemmd.NotFound):
        made[0].delete()


def test_a_buffer_as_context_manager_is_deleted(session):
    with session.create_buffer(64):
        assert len(session.buffers()) == 1
    assert session.buffers() == []


def test_what_was_deleted_in_its_block_is_not_missed_at_the_end(session):
    with (
        session.upload(np.ones(4, "f4")) as buffer,
        session.plan([gemmd.fill(buffer, 0)]) as plan,
    ):
        plan.delete()
        buffer.delete()
    assert session.buffers() == []


def test_published_weights_are_found_by_another_session_read_only(client, session):
    weights = session.upload(np.eye(3, dtype="f4")).publish("model/w1")
    assert weights.read_only
    with client.session() as other:
        found = other.find("model/w1")
        assert found.read_only and found.shape == (3, 3)
        np.testing.assert_array_equal(found.download(), np.eye(3))
        with pytest.raises(gemmd.FailedPrecondition, match="read-only"):
            found.upload(np.zeros((3, 3), "f4"))
        with pytest.raises(gemmd.AlreadyExists):
            other.create_buffer(16).publish("model/w1")
        other.unpublish("model/w1")
        with pytest.raises(gemmd.NotFound):
            other.find("model/w1")


def test_a_plan_runs_with_its_own_data_other_data_and_other_buffers(session):
    x, y = (session.create_buffer(shape=(2, 2), dtype="f32") for _ in range(2))
    d, e = (session.create_buffer(shape=(2, 2), dtype="f32") for _ in range(2))
    eye = np.eye(2, dtype="f4")
    ops = [gemmd.write(x, 2 * eye), gemmd.matmul(x, x, d), gemmd.read(d)]
    with session.plan(ops, label="square") as plan:
        assert plan.kernels == ("fake_write", "fake_matmul", "fake_read")
        np.testing.assert_array_equal(plan.run()[0], 4 * eye)
        np.testing.assert_array_equal(plan.run(inputs=[3 * eye])[0], 9 * eye)
        assert plan.run(rebind={x: y, d: e}, inputs=[5 * eye]).report.kernel == "fake_matmul"
        np.testing.assert_array_equal(e.download(), 25 * eye)
        np.testing.assert_array_equal(d.download(), 9 * eye)
        with pytest.raises(ValueError, match="2 inputs for a plan with 1 write"):
            plan.run(inputs=[eye, eye])
    with pytest.raises(gemmd.NotFound):
        plan.run()


def test_the_client_asks_for_info_once_and_for_devices_each_time(fake, client):
    assert client.info().version == client.info().version == "fake"
    assert [d.name for d in client.devices()] == [d.name for d in client.devices()] == ["cpu:0"]
    assert (fake.count(methods.GET_SERVER_INFO), fake.count(methods.LIST_DEVICES)) == (1, 2)
    client.info(refresh=True)
    assert fake.count(methods.GET_SERVER_INFO) == 2


def test_explain_describes_the_problem(fake, client):
    answer = client.explain(4, 5, 6, quantize="fp8-block", activation="relu", has_bias=True)
    problem = next(request for name, request in fake.calls if name == methods.EXPLAIN).problem
    assert answer.problem == "4x5x6 dtype 4"
    assert (problem.a_granularity, problem.b_granularity) == (3, 4)
    assert problem.has_bias and problem.activation == 1
    assert not problem.HasField("gate")
    client.explain(
        4, 512, 6, quantize="fp8-block", out_dtype="e4m3", gate=gemmd.Gate("silu", limit=7.0)
    )
    gated = [request for name, request in fake.calls if name == methods.EXPLAIN][-1].problem
    assert (gated.output_dtype, gated.gate.activation, gated.gate.limit) == (4, 2, 7)


def test_explain_describes_a_grouped_problem(fake, client):
    gate = gemmd.Gate("gelu_erf", limit=7.0)
    client.explain(
        4, 6, 5, quantize="fp8-block", out_dtype="e4m3", groups=3, layout="counts", gate=gate,
        weights_apart=True, expected_rows=2,
    )  # fmt: skip
    request = next(request for name, request in fake.calls if name == methods.EXPLAIN)
    problem = request.grouped
    assert not request.HasField("problem")
    assert (problem.groups, problem.m, problem.n, problem.k) == (3, 4, 6, 5)
    assert (problem.layout, problem.operand_dtype, problem.output_dtype) == (1, 4, 4)
    assert (problem.a_granularity, problem.b_granularity) == (3, 4)
    assert problem.weights_apart and problem.expected_rows == 2
    assert (problem.gate.activation, problem.gate.limit) == (4, 7)
    with pytest.raises(ValueError, match="layout 'rows' does not exist"):
        client.explain(4, 6, 5, groups=3, layout="rows")


def test_explain_describes_a_k_grouped_problem(fake, client):
    client.explain(
        4, 6, 512, quantize="fp8-block", b_dtype="e5m2", groups=2, along_k=True, has_c=True
    )
    request = next(request for name, request in fake.calls if name == methods.EXPLAIN)
    problem = request.k_grouped
    assert not request.HasField("problem") and not request.HasField("grouped")
    assert (problem.groups, problem.m, problem.n, problem.k) == (2, 4, 6, 512)
    assert (problem.a_dtype, problem.b_dtype, problem.output_dtype) == (4, 7, 1)
    assert (problem.a_granularity, problem.b_granularity) == (3, 3)
    assert problem.layout == 3 and problem.has_c


def test_one_session_serves_many_threads(session, random):
    a = random.standard_normal((8, 8), "f4")
    wrong = []

    def work(factor):
        for _ in range(10):
            got = session.matmul(a * factor, a)
            if not np.allclose(got, (a * factor) @ a, rtol=1e-4, atol=1e-4):
                wrong.append(factor)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_cannot_be_made_whole_leaves_nothing(fake, session, monkeypatch):
    def refused(request):
        raise Refused("RESOURCE_EXHAUSTED", "no more buffers", "BUFFER_LIMIT")

    create, made = fake.create_buffer, []

    def once(request):
        made.append(1)
        return create(request) if len(made) == 1 else refused(request)

    monkeypatch.setattr(fake, "create_buffer", once)
    with pytest.raises(gemmd.ResourceExhausted):
        session.operand((4, 4), gemmd.Granularity.PER_ROW)
    monkeypatch.setattr(fake, "create_buffer", create)
    assert not session.buffers()

    def lost(*_):
        raise gemmd.DataLoss("a chunk was damaged")

    monkeypatch.setattr(session._mover, "upload", lost)
    with pytest.raises(gemmd.DataLoss):
        session.upload(np.ones(3, "f4"))
    assert not session.buffers()


def test_waiting_for_a_server_waits_for_both_connections(fake):
    """Calls go over one, transfers and queues over another: each looks for the server by itself."""
    with gemmd.Client(fake.target, retry=QUICK) as client, client.session() as session:
        held = session.upload(np.ones(3, "f4"))
        held.download()
        seen = []
        real = grpc.channel_ready_future
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                grpc, "channel_ready_future", lambda one: (seen.append(one), real(one))[1]
            )
            client.wait_ready(10)
        assert seen == [client.transport.channel, client.transport.streams]
