import warnings

import numpy as np
import pytest

import gemmd
from gemmd._wire import methods

from .fake.machine import Refused

CUT = Refused("UNAVAILABLE", "connection reset")


@pytest.fixture
def data(random):
    """Three and a half chunks."""
    return random.integers(0, 255, (7 << 19,), np.uint8).view(np.int8)


def sent_chunks(fake):
    return fake.count(methods.UPLOAD)


def test_what_is_uploaded_comes_back(session, data):
    buffer = session.upload(data)
    assert (buffer.transfer.path, buffer.transfer.nbytes) == ("grpc", data.nbytes)
    assert buffer.transfer.why == "the server offers no shared memory"
    got = buffer.download()
    np.testing.assert_array_equal(got, data)
    assert got.transfer.path == "grpc" and got.transfer.gb_per_s > 0
    got[0] = 1  # a download is the caller's own


def test_parts_move_by_offset(session, data):
    buffer = session.upload(data)
    buffer.upload(np.full(10, 7, np.int8), offset_bytes=5)
    np.testing.assert_array_equal(buffer.download(4, 12)[1:11], np.full(10, 7))
    with pytest.raises(ValueError, match="past the buffer"):
        buffer.upload(data, offset_bytes=1)
    with pytest.raises(ValueError, match="past the buffer"):
        buffer.download(data.nbytes - 3, 4)


def test_a_download_fills_the_callers_array(session, data):
    buffer = session.upload(data.reshape(-1, 7))
    out = np.empty_like(data).reshape(-1, 7)
    got = buffer.download(out=out)
    assert got.base is out and got.shape == out.shape and got.transfer.nbytes == data.nbytes
    np.testing.assert_array_equal(out.reshape(-1), data)
    room = np.zeros((4, 10), np.uint8)
    buffer.download(3, out=room[1:3])
    np.testing.assert_array_equal(room[1:3].view(np.int8).reshape(-1), data[3:23])
    assert not room[0].any() and not room[3].any()


@pytest.mark.parametrize(
    ("out", "nbytes", "why"),
    [
        (np.zeros((4, 4), np.int8).T[::2], None, "not writable, dense"),
        (np.broadcast_to(np.int8(0), 4), None, "not writable, dense"),
        (np.frombuffer(b"abcd", np.int8), None, "not writable, dense"),
        (np.zeros(4, "f4"), None, "out is of float32, the buffer of int8"),
        (np.zeros(4, np.int8), 5, "nbytes=5, but out has 4"),
        (np.zeros(33, np.int8), None, "past the buffer's 32"),
    ],
)
def test_an_array_that_cannot_take_a_download_is_refused(session, out, nbytes, why):
    buffer = session.upload(np.ones(32, np.int8))
    with pytest.raises(ValueError, match=why):
        buffer.download(nbytes=nbytes, out=out)
    assert not out.flags.writeable or not out.any()


def test_a_strided_array_is_uploaded_as_numpy_shows_it(session, random):
    array = random.standard_normal((30, 40)).astype(gemmd.bfloat16)
    np.testing.assert_array_equal(session.upload(array.T[::2]).download(), array.T[::2])


def test_float64_becomes_float32_with_a_warning_or_what_is_asked_for_without_one(session):
    with pytest.warns(gemmd.PrecisionWarning, match="data: float64"):
        assert session.upload(np.zeros(4)).dtype == gemmd.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.upload(np.zeros(4), dtype="bf16").dtype == gemmd.bfloat16


FLOATS, WHOLE = np.array([1.5, -2.0], "f4"), np.array([1, -2])
BY_UPLOAD = pytest.param(lambda buffer, data: buffer.upload(data), id="upload")
BY_WRITE = pytest.param(
    lambda buffer, data: buffer.session.execute([gemmd.write(buffer, data)]), id="write"
)
BY_INPUT = pytest.param(
    lambda buffer, data: buffer.session.plan([gemmd.write(buffer, [0, 0])]).run(inputs=[data]),
    id="plan",
)


@pytest.mark.parametrize("put", [BY_UPLOAD, BY_WRITE, BY_INPUT])
@pytest.mark.parametrize(
    ("data", "dtype", "says"),
    [
        (FLOATS, "i8", r"data has dtype float32, .* cut to int8: .*round\(\).astype\('int8'\)"),
        (FLOATS.astype("f8"), "i32", "data has dtype float64, which would be cut to int32"),
        (FLOATS.astype(gemmd.bfloat16), "i8", "bfloat16, which would be cut to int8"),
        ([1.5, 2.0], "i32", "float64, which would be cut"),
        (WHOLE + 300, "i8", "data has dtype int64 and numbers that int8 lacks"),
        (WHOLE + 2**24, "f32", "numbers that float32 lacks"),
        (WHOLE + 300, "e4m3", "numbers that float8_e4m3fn lacks"),
        (FLOATS.astype("c8"), "f32", "data has dtype complex64"),
    ],
)
def test_numbers_that_the_buffers_type_would_change_are_refused(session, put, data, dtype, says):
    buffer = session.create_buffer(shape=(2,), dtype=dtype)
    with pytest.raises(TypeError, match=says):
        put(buffer, data)


@pytest.mark.parametrize("put", [BY_UPLOAD, BY_WRITE, BY_INPUT])
@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (WHOLE, "i8"), (WHOLE.tolist(), "f32"), (WHOLE > 0, "i32"), (WHOLE + 2**24 - 2, "f32"),
        (FLOATS, "bf16"), (FLOATS.tolist(), "e4m3"), (FLOATS.astype(gemmd.bfloat16), "f32"),
    ],
)  # fmt: skip
def test_others_are_converted_without_a_word(session, put, data, dtype):
    buffer = session.create_buffer(shape=(2,), dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        put(buffer, data)
    np.testing.assert_array_equal(buffer.download().astype("f8"), np.asarray(data, "f8"))


@pytest.mark.parametrize("put", [BY_UPLOAD, BY_WRITE, BY_INPUT])
def test_float64_is_narrowed_to_the_buffers_type_with_a_warning(session, put):
    buffer = session.create_buffer(shape=(2,), dtype="f32")
    with pytest.warns(gemmd.PrecisionWarning, match="data: float64") as caught:
        put(buffer, FLOATS.astype("f8"))
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize("chunk", [0, 1, 3])
def test_a_cut_upload_goes_on_from_what_was_committed(fake, session, data, chunk):
    buffer = session.create_buffer(shape=data.shape, dtype="i8")
    fake.faults.cut_upload_after = [(chunk, CUT)]
    transfer = buffer.upload(data)
    assert transfer.resumed == 1
    np.testing.assert_array_equal(buffer.download(), data)
    assert buffer.refresh().committed_bytes == data.nbytes - (chunk << 20)


def test_an_upload_cut_twice_with_its_old_stream_still_open_goes_on(fake, session, data):
    buffer = session.create_buffer(shape=data.shape, dtype="i8")
    busy = Refused("ABORTED", "another upload is under way", "UPLOAD_BUSY")
    fake.faults.cut_upload_after = [(1, CUT), (0, busy), (1, CUT)]
    assert buffer.upload(data).resumed == 3
    np.testing.assert_array_equal(buffer.download(), data)


def test_anothers_upload_under_way_is_not_waited_for(fake, session, data):
    buffer = session.create_buffer(shape=data.shape, dtype="i8")
    fake.faults.cut_upload_after = [(0, Refused("ABORTED", "another upload", "UPLOAD_BUSY"))]
    with pytest.raises(gemmd.Aborted):
        buffer.upload(data)


def test_a_chunk_damaged_on_the_way_up_is_sent_again_and_damage_for_ever_is_an_error(
    fake, session, data
):
    buffer = session.create_buffer(shape=data.shape, dtype="i8")
    damaged = Refused("DATA_LOSS", "the CRC32C does not match", "CRC_MISMATCH")
    fake.faults.cut_upload_after = [(1, damaged)]
    assert buffer.upload(data).resumed == 1
    fake.faults.cut_upload_after = [(0, damaged)] * 9
    with pytest.raises(gemmd.DataLoss):
        buffer.upload(data)


def test_the_checksums_sent_are_those_of_the_data(fake, session, data, monkeypatch):
    monkeypatch.setattr("gemmd._wire.chunks._CRC", lambda _: 0)
    buffer = session.create_buffer(shape=data.shape, dtype="i8")
    with pytest.raises(gemmd.DataLoss, match="does not match"):
        buffer.upload(data)


def test_a_refused_upload_is_not_repeated(fake, session, data):
    buffer = session.create_buffer(shape=data.shape, dtype="i8")
    fake.faults.cut_upload_after = [(0, Refused("FAILED_PRECONDITION", "read-only", "READ_ONLY"))]
    with pytest.raises(gemmd.FailedPrecondition):
        buffer.upload(data)
    assert fake.count(methods.UPLOAD) == 1


def test_a_cut_download_asks_for_the_rest(fake, session, data):
    buffer = session.upload(data)
    fake.faults.cut_download_after = [2, 1]
    got = buffer.download()
    np.testing.assert_array_equal(got, data)
    assert got.transfer.resumed == 2


def test_a_downloaded_chunk_with_a_wrong_checksum_is_asked_for_again(fake, session, data):
    buffer = session.upload(data)
    fake.faults.corrupt_download_chunk = [1]
    got = buffer.download()
    np.testing.assert_array_equal(got, data)
    assert got.transfer.resumed == 1


def test_a_chunk_that_stays_damaged_is_data_loss(fake, session, data):
    buffer = session.upload(data)
    fake.faults.corrupt_download_chunk = [0] * 9
    with pytest.raises(gemmd.DataLoss, match="CRC32C"):
        buffer.download()
