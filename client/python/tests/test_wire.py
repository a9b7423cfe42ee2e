import google_crc32c
import pytest

from gemmd import wire
from gemmd.v1 import buffer_service_pb2 as pb


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 1 << 20, (1 << 63) - 1])
def test_varints_are_read_back_by_protobuf(value):
    assert pb.DeleteBuffersResponse.FromString(wire.integer(1, value)).freed_bytes == value


@pytest.mark.parametrize("size", [0, 1, 127, 128, 70000])
def test_an_upload_request_written_by_hand_is_the_message(size):
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    written = wire.upload_request(b"s" * 16, b"b" * 16, 12345678901, 0xDEADBEEF, data)
    message = pb.UploadRequest.FromString(written)
    assert message == pb.UploadRequest(
        session_id=b"s" * 16,
        buffer_id=b"b" * 16,
        offset_bytes=12345678901,
        crc32c=0xDEADBEEF,
        data=data,
    )


def test_only_the_first_upload_request_names_session_and_buffer():
    message = pb.UploadRequest.FromString(wire.upload_request(b"", b"", 0, 7, b"xyz"))
    assert (message.session_id, message.buffer_id, message.data) == (b"", b"", b"xyz")


@pytest.mark.parametrize("offset", [0, 1, 1 << 40])
def test_a_download_response_is_read_without_copying_its_data(offset):
    data = b"payload" * 100
    crc = google_crc32c.value(data)
    message = pb.DownloadResponse(offset_bytes=offset, crc32c=crc, data=data).SerializeToString()
    got_offset, got_crc, view = wire.download_response(message)
    assert (got_offset, got_crc, bytes(view)) == (offset, crc, data)
    assert view.obj is message


@pytest.mark.parametrize("message", [b"\x1a\x05ab", b"\x08\xff", b"\x0b"])
def test_a_broken_download_response_is_refused(message):
    with pytest.raises(ValueError):
        wire.download_response(message)
