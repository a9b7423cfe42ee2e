"""Shared memory with a server on the same host: descriptors by Unix socket, arrays over mapped
memory.

The protocol is one exchange a connection. 'G' and a token gets a descriptor; 'P' with a descriptor
puts one and gets a token.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmd import dtypes
from gemmd._connection.here_only import Unpickled
from gemmd.errors import FailedPrecondition

_TOKEN_BYTES = 16
_TIMEOUT_S = 5.0
_RECORD_BYTES = 4096


def socket_address(share_socket: str) -> str:
    """What connect() takes for "unix:/path" or "unix-abstract:name"."""
    kind, _, name = share_socket.partition(":")
    if kind == "unix" and name:
        return name
    if kind == "unix-abstract" and name:
        return "\0" + name
    raise ValueError(f'share_socket="{share_socket}" is neither unix:PATH nor unix-abstract:NAME')


def _connect(share_socket: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(_TIMEOUT_S)
    try:
        link.connect(socket_address(share_socket))
    except OSError:
        link.close()
        raise
    return link


def unreachable(share_socket: str) -> str:
    """Why this process cannot use the socket, or "" if it can: then it shares the server's host."""
    if not share_socket:
        return "the server offers no shared memory"
    try:
        _connect(share_socket).close()
    except (OSError, ValueError) as error:
        return f"{share_socket}: {error}"
    return ""


def fetch_descriptor(share_socket: str, token: bytes) -> int:
    """The descriptor that ExportBuffer's token stands for. The caller closes it.

    Raises
    ------
    FailedPrecondition
        The server refused: the token is unknown, used or older than 10 s.
    OSError
        The socket cannot be reached.
    """
    with _connect(share_socket) as link:
        link.sendall(b"G" + token)
        answer, descriptors, _, _ = socket.recv_fds(link, 4096, 1)
        if answer[:1] != b"\0" or not descriptors:
            for descriptor in descriptors:
                os.close(descriptor)
            raise _refused(answer)
        return descriptors[0]


def fetch_record(share_socket: str, token: bytes) -> bytes:
    """The bytes in the descriptor that the token stands for: what describes memory that is not the
    host's. Errors as fetch_descriptor's.
    """
    descriptor = fetch_descriptor(share_socket, token)
    try:
        return os.pread(descriptor, _RECORD_BYTES, 0)
    finally:
        os.close(descriptor)


def offer_descriptor(share_socket: str, descriptor: int) -> bytes:
    """Sends a descriptor; the token is for ImportBuffer, once, within 10 s. Errors as
    fetch_descriptor's.
    """
    with _connect(share_socket) as link:
        socket.send_fds(link, [b"P"], [descriptor])
        answer = b""
        while len(answer) < 1 + _TOKEN_BYTES and (part := link.recv(4096)):
            answer += part
    if answer[:1] != b"\0" or len(answer) != 1 + _TOKEN_BYTES:
        raise _refused(answer)
    return answer[1:]


def _refused(answer: bytes) -> FailedPrecondition:
    text = answer[1:].decode(errors="replace") if answer else "closed without an answer"
    return FailedPrecondition(f"share socket: {text}", reason="SHARE_REFUSED")


def map_descriptor(descriptor: int, size_bytes: int, writable: bool) -> npt.NDArray[np.uint8]:
    """The memory behind a descriptor as bytes. The mapping lives as long as any view of the
    array.
    """
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    mapped = mmap.mmap(descriptor, size_bytes, flags=mmap.MAP_SHARED, prot=access)
    return np.frombuffer(mapped, dtype=np.uint8)


def map_from(descriptor: int, size_bytes: int, writable: bool) -> npt.NDArray[np.uint8]:
    """map_descriptor, then closes the descriptor: the mapping does not need it."""
    try:
        return map_descriptor(descriptor, size_bytes, writable)
    finally:
        os.close(descriptor)


class SharedArray(Unpickled):
    """An array in memory that a server on this host can be given: see `session.import_array`.

    Attributes
    ----------
    array : numpy.ndarray
        Zeros at first; writes are seen by the server without a copy.
    """

    def __init__(self, shape: Sequence[int] | int, dtype: dtypes.DTypeLike = "f32") -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = dtypes.as_dtype(dtype)
        self.size_bytes = math.prod(self.shape) * self.dtype.itemsize
        if self.size_bytes <= 0:
            raise ValueError(f"shape={self.shape} holds no bytes")
        self.descriptor = os.memfd_create("gemmd", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, self.size_bytes)
            # The server refuses memory that could be cut off under a running kernel.
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            raw = map_descriptor(self.descriptor, self.size_bytes, writable=True)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.array: npt.NDArray[Any] = raw.view(self.dtype).reshape(self.shape)

    _elsewhere = "the process that is to share memory makes its own"

    def __repr__(self) -> str:
        return f"SharedArray({self.dtype.name}{list(self.shape)})"

    def offer(self, share_socket: str) -> bytes:
        """Sends the memory to the server; the token is for ImportBuffer."""
        return offer_descriptor(share_socket, self.descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self.descriptor)
