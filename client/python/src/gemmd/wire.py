"""The few pieces of protobuf's wire format that are written or read by hand, because a message
class would copy the payload.

Everything else goes through the generated classes.
"""

from __future__ import annotations

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


def integer(number: int, value: int) -> bytes:
    """A varint field; empty for 0, which is proto3's default."""
    return varint(number << 3) + varint(value) if value else b""


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
    view = memoryview(message)
    offset_bytes, crc32c, data, at = 0, 0, view[:0], 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _read_varint(view, at)
            offset_bytes = value if number == 1 else offset_bytes
        elif kind == _FIXED32:
            crc32c = int.from_bytes(view[at : at + 4], "little") if number == 2 else crc32c
            at += 4
        elif kind == _LENGTH:
            length, at = _read_varint(view, at)
            if at + length > len(view):
                raise ValueError(f"field of {length} bytes at {at} in a message of {len(view)}")
            data = view[at : at + length] if number == 3 else data
            at += length
        else:
            raise ValueError(f"wire type {kind} in a DownloadResponse")
    return offset_bytes, crc32c, data


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
