"""Bytes in chunks, each with its CRC32C: what upload streams send, and what download streams
deliver.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from gemmd._wire import wire
from gemmd.errors import DataLoss
from gemmd.v1 import buffer_service_pb2 as pb

CHUNK_BYTES = (
    1 << 20
)  # under every server's max_message_bytes that is 2 MiB or more; see chunk_bytes()
_OVERHEAD_BYTES = 1024  # what the contract reserves of a message for all that is not data
_CRC: Any = google_crc32c.value


def chunk_bytes(max_message_bytes: int) -> int:
    """The largest chunk worth sending to a server with this message limit; 0 stands for the default
    limit.
    """
    return min(CHUNK_BYTES, (max_message_bytes or 4 << 20) - _OVERHEAD_BYTES)


def as_bytes(data: npt.NDArray[Any]) -> memoryview:
    """An array's elements, dense and row-major, as bytes; without a copy if they lie like that
    already.
    """
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data


def crc32c(data: wire.BytesLike) -> int:
    return int(_CRC(bytes(data)))


def upload_requests(
    session_id: bytes, buffer_id: bytes, base_bytes: int, data: memoryview, start: int, chunk: int
) -> Iterator[bytes]:
    """UploadRequests that put data[start:] at base_bytes + start."""
    for at in range(start, len(data), chunk):
        part = bytes(data[at : at + chunk])
        ids = (session_id, buffer_id) if at == start else (b"", b"")
        yield wire.upload_request(*ids, base_bytes + at, crc32c(part), part)


def resume_at(buffer: pb.Buffer, base_bytes: int, start: int) -> int:
    """Where an upload goes on that was cut, in bytes of its data, when it last began at `start`.

    If the server's latest upload began elsewhere, ours never reached it and nothing is gained.
    """
    if buffer.upload_offset_bytes != base_bytes + start:
        return start
    return start + buffer.committed_bytes


class Receiver:
    """Puts downloaded chunks into memory and knows how far it came.

    Parameters
    ----------
    out : memoryview
        Bytes to fill, writable.
    base_bytes : int
        The buffer's offset that belongs to out[0].
    """

    def __init__(self, out: memoryview, base_bytes: int) -> None:
        self.out = out
        self.base_bytes = base_bytes
        self.received = 0

    @property
    def done(self) -> bool:
        return self.received == len(self.out)

    def request(self, session_id: bytes, buffer_id: bytes, chunk: int) -> bytes:
        """DownloadRequest for what is missing."""
        return pb.DownloadRequest(
            session_id=session_id,
            buffer_id=buffer_id,
            offset_bytes=self.base_bytes + self.received,
            length_bytes=len(self.out) - self.received,
            chunk_bytes=max(chunk, 4096),
        ).SerializeToString()

    def accept(self, message: bytes) -> None:
        """Takes one DownloadResponse.

        Raises
        ------
        DataLoss
            The checksum does not match, or a chunk is missing; what was received before stands.
        """
        offset_bytes, crc, data = wire.download_response(message)
        expected = self.base_bytes + self.received
        if offset_bytes != expected or self.received + len(data) > len(self.out):
            raise DataLoss(f"chunk of {len(data)} bytes at {offset_bytes}; {expected} comes next")
        if crc32c(data) != crc:
            raise DataLoss(
                f"chunk at {offset_bytes}: its CRC32C does not match", reason="CRC_MISMATCH"
            )
        self.out[self.received : self.received + len(data)] = data
        self.received += len(data)
