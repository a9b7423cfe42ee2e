"""A process that was forked from one that has connected: it is refused what it inherited, and what
it does to that does not reach the other.
"""

import asyncio
import gc
import os
import threading

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd import native

from .conftest import QUICK

X, W = np.ones((4, 16), "f4"), np.ones((8, 16), "f4")
LARGE = np.ones((4096, 16), "f4")  # goes through shared memory


def in_child(work):
    """What `work` came to in a forked process, as words."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__} {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def client(arming_fake):
    with gemmd.Client(arming_fake.target, timeout_s=20, retry=QUICK) as client:
        yield client


@pytest.fixture
def armed(session):
    buffer = session.create_buffer(shape=(4,), dtype="f32", memory_kind="host_shared")
    return session.plan([gemmd.fill(buffer, 1)]).arm()


pytestmark = pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())

CALLS = {
    "a small matmul": lambda s, _: lambda: s.matmul(X, W.T),
    "one through shared memory": lambda s, _: lambda: s.matmul(LARGE, W.T),
    "an upload": lambda s, _: lambda: s.upload(np.ones(1 << 20, "f4")),
    "an upload to what there is": lambda s, buffer: lambda: buffer.upload(np.ones(1 << 20, "f4")),
    "a download": lambda s, buffer: buffer.download,
    "a plan": lambda s, buffer: s.plan([gemmd.fill(buffer, 2)]).run,
    "a session": lambda s, _: s.client.session,
}


@pytest.mark.parametrize("what", CALLS)
def test_what_a_fork_inherits_is_refused_with_the_way_out(arming_fake, session, what):
    buffer = session.upload(np.zeros(1 << 20, "f4"))
    call = CALLS[what](session, buffer)
    session.matmul(LARGE, W.T)
    calls = len(arming_fake.calls)
    said = in_child(call)
    assert said.startswith("FailedPrecondition this process was forked")
    assert "call gemmd.connect()" in said and "'spawn'" in said and "[FORKED]" in said
    assert [name for name, _ in arming_fake.calls[calls:] if "Info" not in name] == []


def test_layers_and_armed_plans_and_queues_are_refused_too(session, armed):
    layer = gemmd.Linear(session, W, quantize=None)
    assert layer(X).report.path == "armed"
    with session.queue() as queue:
        for call in (lambda: layer(X), armed.ring, armed.run, lambda: queue.submit([])):
            assert in_child(call).startswith("FailedPrecondition this process was forked")


def test_nothing_that_a_child_tries_reaches_the_parents_calls(session):
    layer = gemmd.Linear(session, W, quantize=None)
    wrong, stop = [], threading.Event()

    def parent():
        while not stop.is_set():
            for multiply in (layer, lambda x: session.matmul(x, W.T)):
                got = multiply(LARGE)
                if not (got == 16).all():
                    wrong.append(got)

    def child():
        for _ in range(50):
            for call in (layer, lambda x: session.matmul(x, W.T)):
                with pytest.raises(gemmd.FailedPrecondition):
                    call(3 * LARGE)

    thread = threading.Thread(target=parent)
    thread.start()
    try:
        assert in_child(child) == "None"
    finally:
        stop.set()
        thread.join()
    assert not wrong


@pytest.mark.parametrize("connect", [gemmd.connect, gemmd.Client, gemmd.aio.Client])
def test_a_child_of_a_connected_process_does_not_connect(arming_fake, session, connect):
    """gRPC does not survive it: the child hangs, the parent crashes."""

    def work():
        if connect is gemmd.aio.Client:
            return asyncio.run(gemmd.aio.Client(arming_fake.target).info())
        return connect(arming_fake.target).info()

    said = in_child(work)
    assert said.startswith("FailedPrecondition this process was forked from one that has been connected")
    assert "'spawn'" in said and "before the first call" in said and "[FORKED]" in said
    assert in_child(lambda: in_child(work)) == said
    np.testing.assert_array_equal(session.matmul(X, W.T), np.full((4, 8), 16))


def test_a_session_that_a_child_leaves_is_still_the_parents(client):
    with client.session() as session:

        def leave():
            with client, session:
                pass

        assert in_child(leave) == "None"
        np.testing.assert_array_equal(session.matmul(X, W.T), np.full((4, 8), 16))


@pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())
def test_a_child_that_lets_go_of_an_armed_session_ends_and_the_parent_goes_on(client):
    with client.session() as session:
        layer = gemmd.Linear(session, W, quantize=None)
        wanted = np.array(layer(X))

        def let_go():
            nonlocal layer
            region, session.arming._region = session.arming._region, None
            layer._local.__dict__.clear()
            del layer, region  # the thread that watches the daemon is the parent's
            gc.collect()
            return "let go"

        assert in_child(let_go) == "let go"
        assert np.array_equal(layer(X), wanted)
