"""Sessions, buffers, transfers and errors of a real daemon; the examples and the bench against
it.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gemmd

from ..conftest import BENCH

pytestmark = pytest.mark.e2e

DIGITS = Path(__file__).parents[4] / "examples" / "digits" / "digits.py"


@pytest.fixture
def data(random):
    """Bytes of every value, over one staging buffer and a bit."""
    return random.integers(-128, 127, (17 << 20) + 5, np.int8)


@pytest.mark.parametrize("way", ["off", "auto"])
def test_what_is_uploaded_comes_back(client, data, way):
    with client.session(shared_memory=way) as session:
        buffer = session.upload(data)
        got = buffer.download()
        np.testing.assert_array_equal(got, data)
        out = np.empty_like(data)
        buffer.download(out=out)
        np.testing.assert_array_equal(out, data)
        shared = way == "auto" and client.info().share_socket
        assert buffer.transfer.path == got.transfer.path == ("shm" if shared else "grpc")
        buffer.upload(np.full(9, 3, np.int8), offset_bytes=4)
        np.testing.assert_array_equal(buffer.download(4, 9), np.full(9, 3))
        assert buffer.download(13)[0] == data[13].view(np.uint8)


def test_a_deleted_buffers_memory_is_free_when_that_is_answered(client):
    """Whatever was done with it last: the next one may need all of the device."""
    used = []
    with client.session(shared_memory="off") as session:
        for _ in range(200):
            buffer = session.upload(np.ones(4096, "f4"))
            assert buffer.download()[-1] == session.execute([gemmd.read(buffer)])[0][-1] == 1
            buffer.delete()
            used.append(sum(one.used_bytes for one in client.devices()))
    assert len(set(used)) == 1


def test_a_fresh_buffer_holds_zeros(session):
    assert not session.create_buffer(shape=(100, 100), dtype="f32").download().any()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "e4m3", "e5m2", "i8"])
def test_every_dtype_keeps_its_bits(session, random, dtype):
    kind = gemmd.as_dtype(dtype)
    array = (random.standard_normal((33, 65)) * 10).astype(kind)
    buffer = session.upload(array)
    assert (buffer.dtype, buffer.shape) == (kind, (33, 65))
    np.testing.assert_array_equal(buffer.download().view(np.uint8), array.view(np.uint8))


def needs_sharing(client):
    if not client.info().share_socket:
        pytest.skip("the daemon offers no shared memory")


def test_a_shared_buffer_is_the_servers_memory(client, session):
    needs_sharing(client)
    buffer = session.create_buffer(shape=(4, 4), dtype="f32", memory_kind="host_shared")
    array = buffer.array()
    array[...] = 2
    d = session.create_buffer(shape=(4, 4), dtype="f32")
    assert session.execute([gemmd.matmul(buffer, buffer, d), gemmd.read(d)])[0][0, 0] == 16
    session.execute([gemmd.fill(buffer, 7)])
    assert (array == 7).all()


def test_an_imported_array_is_used_in_place(client, session):
    needs_sharing(client)
    memory = gemmd.SharedArray((4, 4), "f32")
    buffer = session.import_array(memory)
    memory.array[...] = 3
    assert (session.execute([gemmd.read(buffer)])[0] == 3).all()
    session.execute([gemmd.fill(buffer, 5)])
    assert (memory.array == 5).all()


def test_a_published_buffer_outlives_its_session(client):
    name = f"python/e2e-{time.time_ns()}"
    with client.session() as owner:
        weights = owner.upload(np.eye(5, dtype="f4")).publish(name)
        with pytest.raises(gemmd.AlreadyExists):
            owner.create_buffer(16).publish(name)
        with pytest.raises(gemmd.FailedPrecondition):
            owner.execute([gemmd.fill(weights, 0)])
    with client.session() as reader:
        found = reader.find(name)
        assert found.read_only
        np.testing.assert_array_equal(found.download(), np.eye(5))
        reader.unpublish(name)
        with pytest.raises(gemmd.NotFound):
            reader.find(name)


def test_errors_say_what_is_wrong_and_how_to_find_it_in_the_log(session):
    a, b = (session.create_buffer(shape=(4, k), dtype="f32") for k in (5, 6))
    d = session.create_buffer(shape=(4, 4), dtype="f32")
    with pytest.raises(gemmd.InvalidArgument) as caught:
        session.execute([gemmd.matmul(a, b, d)])
    assert "5" in caught.value.message and "6" in caught.value.message
    assert caught.value.reason == caught.value.reason.upper() != ""
    assert caught.value.request_id
    with pytest.raises(gemmd.InvalidArgument):
        session.execute([])
    with pytest.raises(gemmd.NotFound):
        session.execute([gemmd.read(gemmd.Tensor(b"?" * 16, "f32", (1,)))])
    with pytest.raises(gemmd.ResourceExhausted):
        session.create_buffer(1 << 60)


def test_a_closed_session_is_gone_with_its_buffers(client):
    session = client.session(label="short")
    buffer = session.create_buffer(1 << 20)
    names = [one.name for one in client.sessions()]
    assert session.name in names
    session.close()
    assert session.name not in [one.name for one in client.sessions()]
    with pytest.raises(gemmd.NotFound):
        buffer.download()


def test_a_killed_clients_session_ends_after_its_grace(client, address):
    program = (
        "import gemmd, sys, time\n"
        f"s = gemmd.Client({address!r}).session(grace_s=0.1)\n"
        "s.create_buffer(1 << 20)\n"
        "print(s.name, flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        name = child.stdout.readline().strip()
        assert name in [one.name for one in client.sessions()]
    finally:
        child.kill()
        child.wait()
    end = time.monotonic() + 60
    while name in [one.name for one in client.sessions()] and time.monotonic() < end:
        time.sleep(0.02)
    assert name not in [one.name for one in client.sessions()]


def test_the_server_describes_itself(client):
    assert client.info().version and client.info().limits.max_ops > 0
    devices = client.devices()
    assert devices[0].memory_bytes > 0
    kernels = [kernel.name for kernel in client.kernels(devices[0].name)]
    answer = client.explain(64, 64, 64, quantize="fp8-block")
    chosen = [one.kernel for one in answer.candidates if one.chosen]
    assert len(chosen) == 1 and chosen[0] in kernels
    assert client.health(devices[0].name) == "serving"
    for unknown in ("cpu:99", "\u00fc" * 5, "x" * 130):
        with pytest.raises(gemmd.NotFound):
            client.health(unknown)


def test_a_named_kernel_is_used_and_an_unknown_one_not_found(client, session, random):
    a = random.standard_normal((8, 8), "f4")
    name = session.matmul(a, a).report.kernel
    forced = session.matmul(a, a, kernel=name).report
    assert (forced.kernel, forced.ops[2].reason) == (name, "forced")
    with pytest.raises(gemmd.NotFound):
        session.matmul(a, a, kernel="no_such_kernel")


def test_the_digits_are_recognised_in_fp8(address):
    done = subprocess.run(
        [sys.executable, str(DIGITS), "--server", address, "--json"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["fp8"]["accuracy"] > 0.95 and figures["float32"]["accuracy"] > 0.95
    assert figures["float32"]["relative_error"] < 1e-5 < figures["fp8"]["relative_error"] < 0.1


def test_the_bench_prints_its_figures(address):
    done = subprocess.run(
        [sys.executable, str(BENCH / "calls.py"), "--server", address, "--json", "--count", "100",
         "--mib", "4"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["execute_tiny_p50_us"] > 0 and figures["upload_grpc_gb_per_s"] > 0


def test_the_bench_of_workers_counts_every_way_and_one_copy_of_the_weight(client, address):
    device = client.devices()[0].name
    with client.session(device=device) as session:
        weight = session.operand((64, 256), gemmd.Granularity.BLOCK_128X128)
        source = session.upload(np.ones((64, 256), "f4"))
        session.execute([gemmd.quantize(source, weight)])
        named = [f"bench/{time.time_ns()}/{part}" for part in ("values", "scales")]
        for tensor, name in zip((weight.values, weight.scales), named, strict=True):
            tensor.owner.publish(name)
        done = subprocess.run(
            [sys.executable, str(BENCH / "workers.py"), "--server", address, "--device", device,
             "--values", named[0], "--scales", named[1], "--rows", "16", "--workers", "2",
             "--seconds", "1.5"],
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        for name in named:
            session.unpublish(name)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["workers"] == 2
    assert figures["queue_per_second"] > 0 and figures["execute_per_second"] > 0
    assert figures["used_bytes_grew_by"] == figures["workers_own_bytes"] > 0


def test_the_bench_of_workers_says_why_it_cannot(client, address):
    done = subprocess.run(
        [sys.executable, str(BENCH / "workers.py"), "--server", address, "--device", "cpu:0",
         "--values", "not/there", "--scales", "not/there"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 1 and "NotFound" in done.stderr and "a worker ended" in done.stderr


FORKING = """
import os, sys
import gemmd

address = sys.argv[1]
for _ in range(4):
    client = gemmd.Client(address)
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            with gemmd.connect(address) as own:
                own.info()
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
"""


def test_children_connect_before_their_parent_does(address):
    """In a process of its own: this one is connected."""
    subprocess.run([sys.executable, "-c", FORKING, address], check=True, timeout=240)
