import gc
import os
import socket

import numpy as np
import pytest

import gemmd
from gemmd import share
from gemmd._memory import lanes
from gemmd._wire import methods

from .conftest import QUICK
from .fake.machine import Refused


@pytest.fixture
def client(sharing_fake):
    with gemmd.Client(sharing_fake.target, timeout_s=20, retry=QUICK) as client:
        yield client


@pytest.fixture
def large(random):
    """Larger than the staging buffer, and no multiple of it."""
    return random.standard_normal((5 << 20) + 3, "f4")


def test_a_shared_buffer_is_the_servers_memory(sharing_fake, session):
    buffer = session.create_buffer(shape=(3, 4), dtype="f32", memory_kind="host_shared")
    array = buffer.array()
    array[...] = np.arange(12).reshape(3, 4)
    assert session.execute([gemmd.read(buffer)])[0][2, 3] == 11
    session.execute([gemmd.fill(buffer, 5)])
    assert array[0, 0] == 5
    assert sharing_fake.share.exchanges[-1] == "G"
    assert buffer.array() is not None and sharing_fake.count(methods.EXPORT_BUFFER) == 1


def test_a_device_buffer_has_no_array(session):
    buffer = session.create_buffer(shape=(3,), dtype="f32")
    with pytest.raises(gemmd.FailedPrecondition, match="HOST_SHARED"):
        buffer.array()


def test_large_transfers_go_through_staging_memory(sharing_fake, session, large):
    buffer = session.upload(large)
    assert (buffer.transfer.path, buffer.transfer.why) == ("shm", "")
    got = buffer.download()
    assert got.transfer.path == "shm"
    np.testing.assert_array_equal(got, large)
    assert sharing_fake.count(methods.UPLOAD) == sharing_fake.count(methods.DOWNLOAD) == 0


def test_an_odd_place_in_a_buffer_is_filled_and_read_through_staging_too(session):
    data = np.random.default_rng(1).integers(0, 256, (9 << 20) + 1, np.uint8).view(np.int8)
    buffer = session.create_buffer(shape=(len(data) + 3,), dtype="i8")
    assert buffer.upload(data, 3).path == "shm"
    got = buffer.download(3, len(data))
    assert got.transfer.path == "shm"
    np.testing.assert_array_equal(got.view(np.int8), data)


@pytest.mark.parametrize("up", [True, False])
def test_a_copy_that_fails_is_the_transfers_error_and_costs_the_staging_memory(
    sharing_fake, session, large, up
):
    buffer = session.upload(large)
    exported = sharing_fake.count(methods.EXPORT_BUFFER)
    sharing_fake.faults.statuses[methods.EXECUTE] = [Refused("INTERNAL", "no more", "BROKEN")]
    with pytest.raises(gemmd.Internal, match="no more"):
        buffer.upload(large) if up else buffer.download()
    assert buffer.upload(large).path == "shm"
    assert sharing_fake.count(methods.EXPORT_BUFFER) == exported + 1
    np.testing.assert_array_equal(buffer.download(), large)


def staging_sizes(fake):
    return [b.size_bytes for b in fake.machine.described.values() if b.label == "staging"]


@pytest.fixture
def long_from_16_mib(monkeypatch):
    monkeypatch.setattr(lanes, "_LONG_FROM_BYTES", 16 << 20)


def test_a_longer_transfer_gets_a_larger_staging_buffer(
    sharing_fake, session, large, long_from_16_mib
):
    few = session.upload(large[: 3 << 20])
    assert staging_sizes(sharing_fake) == [lanes.MOST_LANES * lanes.PIECE_BYTES]
    many = session.upload(large)
    assert staging_sizes(sharing_fake) == [lanes.MOST_LANES * lanes.LONG_PIECE_BYTES]
    for buffer, data in ((few, large[: 3 << 20]), (many, large)):
        got = buffer.download()
        assert got.transfer.path == "shm"
        np.testing.assert_array_equal(got, data)
    assert len(staging_sizes(sharing_fake)) == 1


@pytest.mark.parametrize("has_one", [True, False])
def test_a_larger_staging_buffer_that_is_refused_is_done_without(
    sharing_fake, session, large, long_from_16_mib, has_one
):
    buffer = session.create_buffer(shape=large.shape, dtype="f32")
    if has_one:
        buffer.upload(large[: 3 << 20])
    sharing_fake.fail(methods.CREATE_BUFFER, "RESOURCE_EXHAUSTED", "no room", "TENANT_LIMIT")
    for _ in range(2):  # and not asked for again
        assert buffer.upload(large).path == "shm"
    assert staging_sizes(sharing_fake) == [lanes.MOST_LANES * lanes.PIECE_BYTES]
    np.testing.assert_array_equal(buffer.download(), large)


def test_transfers_of_a_shared_buffer_are_plain_copies(sharing_fake, session, large):
    buffer = session.upload(large, memory_kind="host_shared")
    assert buffer.transfer.path == "shm"
    np.testing.assert_array_equal(buffer.download(), large)
    assert sharing_fake.count(methods.EXECUTE) == 0


def test_small_transfers_to_a_device_buffer_stay_with_grpc(session):
    buffer = session.upload(np.ones(8, "f4"))
    assert buffer.transfer.path == "grpc" and "quicker" in buffer.transfer.why


def test_sharing_can_be_turned_off_and_insisted_on(sharing_fake, client, fake, large):
    with client.session(shared_memory="off") as session:
        assert session.upload(large).transfer.path == "grpc"
    with (
        gemmd.Client(fake.target, retry=QUICK) as remote,
        remote.session(shared_memory="require") as session,
        pytest.raises(gemmd.FailedPrecondition, match="shared memory required"),
    ):
        session.upload(large)


def test_a_server_that_will_not_share_is_served_by_grpc(sharing_fake, session, large):
    refusal = Refused("FAILED_PRECONDITION", "no sharing today", "NOT_SHARED")
    sharing_fake.faults.statuses[methods.EXPORT_BUFFER] = [refusal]
    buffer = session.upload(large)
    assert buffer.transfer.path == "grpc" and "no sharing today" in buffer.transfer.why
    np.testing.assert_array_equal(buffer.download(), large)


def test_a_token_the_socket_does_not_know_is_refused(sharing_fake):
    with pytest.raises(gemmd.FailedPrecondition, match="unknown"):
        share.fetch_descriptor(sharing_fake.share.address, b"x" * 16)


def test_a_server_that_ends_while_it_shares_memory_is_gone(session, monkeypatch):
    """So that `Replicas` goes elsewhere."""
    buffer = session.create_buffer(shape=(4,), dtype="f32", memory_kind="host_shared")

    def cut(*_):
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(share, "fetch_descriptor", cut)
    with pytest.raises(gemmd.Unavailable, match="Connection reset"):
        buffer.array()


def test_an_imported_array_is_used_in_place(sharing_fake, session):
    memory = gemmd.SharedArray((4, 4), "f32")
    buffer = session.import_array(memory)
    memory.array[...] = 3
    d = session.create_buffer(shape=(4, 4), dtype="f32")
    assert session.execute([gemmd.matmul(buffer, buffer, d), gemmd.read(d)])[0][0, 0] == 36
    session.execute([gemmd.copy(d, buffer)])
    assert memory.array[3, 3] == 36
    assert "P" in sharing_fake.share.exchanges


def test_an_imported_plain_array_is_copied_once(session, random):
    array = random.standard_normal((6, 2)).astype(gemmd.bfloat16)
    buffer = session.import_array(array)
    np.testing.assert_array_equal(buffer.array(), array)
    np.testing.assert_array_equal(session.execute([gemmd.read(buffer)])[0], array)


def test_shared_memory_is_sealed_against_shrinking():
    memory = gemmd.SharedArray((1024,), "f32")
    with pytest.raises(PermissionError):
        os.ftruncate(memory.descriptor, 16)


def test_importing_without_a_shared_host_says_why(fake):
    with (
        gemmd.Client(fake.target) as client,
        client.session() as session,
        pytest.raises(gemmd.FailedPrecondition, match="offers no shared memory"),
    ):
        session.import_array(np.zeros(4, "f4"))


def test_abstract_and_path_sockets_are_understood():
    assert share.socket_address("unix:/run/x.sock") == "/run/x.sock"
    assert share.socket_address("unix-abstract:gemmd-3f") == "\0gemmd-3f"
    with pytest.raises(ValueError, match="neither"):
        share.socket_address("127.0.0.1:1")


def test_an_abstract_socket_that_listens_is_reachable_and_one_that_does_not_is_not():
    name = f"gemmd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        assert share.unreachable(f"unix-abstract:{name}") == ""
    assert name in share.unreachable(f"unix-abstract:{name}")


def test_mappings_and_descriptors_are_given_back(session):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    session.import_array(np.zeros(4, "f4"))
    before = descriptors()
    for _ in range(50):
        with session.create_buffer(64, memory_kind="host_shared") as buffer:
            buffer.array()
        session.import_array(np.zeros(4, "f4")).delete()
    del buffer
    gc.collect()  # the fake's exceptions and frames may hold on for a moment
    assert descriptors() - before <= 2
