"""The few pieces of protobuf's wire format that are written or read by hand, because a message
class would copy the payload.

Everything else goes through the generated classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BytesLike = bytes | bytearray | memoryview

_LENGTH = 2  # wire types: varint 0, fixed64 1, length-delimited 2, fixed32 5
_FIXED32 = 5


def varint(value: int) -> bytes:
    """Base-128, least significant group first. value >= 0."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def header(number: int, length: int) -> bytes:
    """What precedes `length` bytes of the length-delimited field `number`."""
    return varint(number << 3 | _LENGTH) + varint(length)


def field(number: int, data: BytesLike) -> bytes:
    """A whole length-delimited field. Fields concatenate: a message is the joined bytes of its
    fields.
    """
    return header(number, len(data)) + bytes(data)


def framed(number: int, pieces: Sequence[BytesLike]) -> list[BytesLike]:
    """A whole length-delimited field of the joined pieces, in pieces: none is copied."""
    return [header(number, sum(len(piece) for piece in pieces)), *pieces]


def integer(number: int, value: int) -> bytes:
    """A varint field; empty for 0, which is proto3's default."""
    return varint(number << 3) + varint(value) if value else b""


def shared_bytes(number: int, buffer_id: bytes, offset_bytes: int) -> bytes:
    """A field of type SharedBytes."""
    return field(number, field(1, buffer_id) + integer(2, offset_bytes))


def upload_request(
    session_id: bytes, buffer_id: bytes, offset_bytes: int, crc32c: int, data: BytesLike
) -> bytes:
    """UploadRequest with one copy of `data`. Leave both ids empty after the first message."""
    ids = field(1, session_id) + field(2, buffer_id) if session_id else b""
    crc = varint(4 << 3 | _FIXED32) + crc32c.to_bytes(4, "little")
    return b"".join((ids, integer(3, offset_bytes), crc, header(5, len(data)), data))


def download_response(message: bytes) -> tuple[int, int, memoryview]:
    """DownloadResponse as (offset_bytes, crc32c, data), data being a view of `message`.

    Raises
    ------
    ValueError
        If the bytes are no such message.
    """
    offset_bytes, crc32c, data = 0, 0, memoryview(b"")
    for number, value in _fields(memoryview(message)):
        if number == 1 and isinstance(value, int):
            offset_bytes = value
        elif number == 2 and isinstance(value, int):
            crc32c = value
        elif number == 3 and isinstance(value, memoryview):
            data = value
    return offset_bytes, crc32c, data


def execute_response(message: bytes) -> tuple[bytes, list[memoryview], bool]:
    """ExecuteResponse as (the report's bytes, outputs, replayed), outputs being views of `message`.

    Raises
    ------
    ValueError
        If the bytes are no such message.
    """
    report, outputs, replayed = b"", [], False
    for number, value in _fields(memoryview(message)):
        if number == 1 and isinstance(value, memoryview):
            report += bytes(value)
        elif number == 2 and isinstance(value, memoryview):
            outputs.append(value)
        elif number == 3:
            replayed = bool(value)
    return report, outputs, replayed


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Numbers and values: of a varint or fixed32 field its number, of a length-delimited one a view
    of its bytes.
    """
    at = 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        kind = tag & 7
        value: int | memoryview
        if kind == 0:
            value, at = _read_varint(view, at)
        elif kind == _FIXED32:
            value = int.from_bytes(view[at : at + 4], "little")
            at += 4
        elif kind == _LENGTH:
            length, at = _read_varint(view, at)
            if at + length > len(view):
                raise ValueError(f"field of {length} bytes at {at} in a message of {len(view)}")
            value = view[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {kind} of field {tag >> 3}")
        yield tag >> 3, value


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while at < len(view):
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("message ends inside a varint")
