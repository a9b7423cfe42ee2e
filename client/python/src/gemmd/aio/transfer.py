"""Bytes between numpy arrays and buffers: by shared memory if the server is on this host, else by
gRPC with resume.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator  # aio

# sync: from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from gemmd import device_array, errors, share
from gemmd._memory import cuda, staging
from gemmd._memory.lanes import MOST_LANES, Pieces, lanes_for, piece_bytes
from gemmd._memory.staging import STAGED_FROM_BYTES, STAGING_BYTES
from gemmd._wire import chunks, methods
from gemmd.device_array import Mapping

# sync: from gemmd._memory.lanes import run_lanes
from gemmd.report import Transfer
from gemmd.retry import resumable
from gemmd.v1 import buffer_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.buffer import Buffer
    from gemmd.aio.session import Session


_Fetched = TypeVar("_Fetched")


class AsyncMover:
    """Moves bytes for one session and decides which way, one transfer at a time: all share the
    staging memory, and two would not be faster.
    """

    def __init__(self, session: Session, mode: str) -> None:
        self._of = weakref.ref(session)  # a cycle would keep one that is dropped
        self._mode = mode
        self._why: str | None = "turned off by the client" if mode == "off" else None
        self._staging: Buffer | None = None
        self._no_larger = False  # than STAGING_BYTES: the server refused one
        self._one_at_a_time = asyncio.Lock()

    @property
    def _session(self) -> Session:
        session = self._of()
        assert session is not None  # it calls this
        return session

    async def why_not_shared(self) -> str:
        """Why shared memory is not used; "" if it is. Found out on first use."""
        if self._why is None:
            info = await self._session.client.info()
            self._why = await asyncio.to_thread(share.unreachable, info.share_socket)
        if self._why and self._mode == "require":
            raise errors.FailedPrecondition(f"shared memory required: {self._why}")
        return self._why

    async def map(self, buffer: Buffer, writable: bool) -> npt.NDArray[np.uint8]:
        """All bytes of a HOST_SHARED buffer, in this process.

        Raises
        ------
        FailedPrecondition
            The buffer is not HOST_SHARED, or the server is on another host.
        """
        if buffer.mapped is None:
            found = await self._export(buffer, writable, share.fetch_descriptor)
            buffer.mapped = share.map_from(*found, writable)
        return buffer.mapped

    async def _export(
        self, buffer: Buffer, writable: bool, fetch: Callable[[str, bytes], _Fetched]
    ) -> tuple[_Fetched, int]:
        """What `fetch` gets from the share socket for a buffer, and the buffer's size in bytes."""
        request = pb.ExportBufferRequest(
            session_id=self._session.session_id, buffer_id=buffer.buffer_id, writable=writable
        )
        answer = await self._session.transport.ask(request, pb.ExportBufferResponse)
        try:
            found = await asyncio.to_thread(fetch, answer.share_socket, answer.token)
        except ConnectionError as error:  # it has answered just now, and has ended since
            raise errors.Unavailable(f"{answer.share_socket}: {error}") from error
        except OSError as error:
            raise errors.FailedPrecondition(f"{answer.share_socket}: {error}") from error
        return found, answer.size_bytes

    async def map_device(self, buffer: Buffer) -> Mapping:
        """The memory of a DEVICE_SHARED buffer, in this process.

        Raises
        ------
        FailedPrecondition
            The server is on another host, the buffer is read-only, or the GPU is not seen here.
        """
        await asyncio.to_thread(cuda.driver)  # before the server is asked for what cannot be used
        await self._session.client.share_socket()
        record, _ = await self._export(buffer, True, share.fetch_record)
        return await asyncio.to_thread(Mapping, device_array.parse(record))

    async def upload(self, buffer: Buffer, data: memoryview, at: int) -> Transfer:
        """Puts `data` at byte `at` of the buffer."""
        buffer._span(len(data), at)
        self._session.transport.home.check()
        async with self._one_at_a_time:
            began = time.perf_counter()
            why, resumed = await self._shared(buffer, data, at, up=True), 0
            if why:
                resumed = await self._upload_grpc(buffer.buffer_id, data, at)
            return self.transfer(len(data), began, why, resumed)

    async def download(self, buffer: Buffer, out: memoryview, at: int) -> Transfer:
        """Fills `out` from byte `at` of the buffer."""
        buffer._span(len(out), at)
        self._session.transport.home.check()
        async with self._one_at_a_time:
            began = time.perf_counter()
            why, resumed = await self._shared(buffer, out, at, up=False), 0
            if why:
                resumed = await self._download_grpc(buffer.buffer_id, out, at)
            return self.transfer(len(out), began, why, resumed)

    @staticmethod
    def transfer(nbytes: int, began: float, why: str, resumed: int) -> Transfer:
        seconds = time.perf_counter() - began
        return Transfer(nbytes, seconds, "grpc" if why else "shm", why, resumed)

    async def _shared(self, buffer: Buffer, data: memoryview, at: int, up: bool) -> str:
        """Moves the bytes through shared memory and returns "", or says why that cannot be."""
        if up and buffer.read_only:
            raise errors.FailedPrecondition(f"{buffer!r} is read-only", reason="READ_ONLY")
        why = await self.why_not_shared()
        direct = buffer.memory_kind == "host_shared"
        if not why and not direct and len(data) < STAGED_FROM_BYTES:
            why = f"{len(data)} bytes are quicker by gRPC"
        if why:
            return why
        try:
            if direct:
                host = await self.map(buffer, not buffer.read_only)
                await asyncio.to_thread(staging.move_wide, host, at, data, up)
            else:
                await self._staged(buffer.buffer_id, data, at, up)
        except errors.NotFound as error:
            # What was not found may be the staging memory, which a caller has deleted with all
            # buffers of the session. By gRPC the server says it of the caller's own buffer.
            return str(error)
        except (errors.FailedPrecondition, errors.ResourceExhausted, OSError) as error:
            # Another host's server behind a socket of the same name, or no room for staging: the
            # bytes still have a way.
            if self._mode == "require":
                raise
            self._why = str(error)
        return self._why or ""

    async def _staging_for(self, nbytes: int) -> Buffer:
        for size_bytes in staging.staging_sizes(nbytes, self._no_larger):
            if self._staging is not None and self._staging.size_bytes >= size_bytes:
                break
            try:
                made = await self._session.create_buffer(
                    size_bytes, memory_kind="host_shared", label="staging"
                )
            except errors.ResourceExhausted:
                if size_bytes == STAGING_BYTES:
                    raise
                self._no_larger = True
                continue
            if self._staging is not None:
                await self._session.delete_buffers([self._staging])
            self._staging = made._kept_by_session()
            break
        assert self._staging is not None
        return self._staging

    async def _staged(self, buffer_id: bytes, data: memoryview, at: int, up: bool) -> None:
        between = await self._staging_for(len(data))
        host = await self.map(between, True)
        length = min(piece_bytes(len(data)), between.size_bytes // MOST_LANES)
        pieces = Pieces(len(data), length)

        async def work(lane: int) -> None:
            room = lane * length
            for start, nbytes in pieces:
                part = data[start : start + nbytes]
                if up:
                    await asyncio.to_thread(staging.move, host, room, part, up)
                program = staging.staged_copy(
                    buffer_id, at + start, between.buffer_id, room, nbytes, up
                )
                await self._session.execute(program, report="none")
                if not up:
                    await asyncio.to_thread(staging.move, host, room, part, up)

        try:
            # sync: run_lanes(lanes_for(len(data), length), pieces, work)
            await run_lanes(lanes_for(len(data), length), pieces, work)  # aio
        except BaseException:
            # A copy that nobody waits for may still come: not into another transfer's bytes.
            self._session._lose(between)
            self._staging = None
            raise

    async def _upload_grpc(self, buffer_id: bytes, data: memoryview, at: int) -> int:
        session, start, resumed = self._session, 0, 0
        chunk = chunks.chunk_bytes((await session.client.info()).limits.max_message_bytes)
        delays = session.transport.retry.delays()
        while True:
            requests = chunks.upload_requests(session.session_id, buffer_id, at, data, start, chunk)
            try:
                await session.transport.send_stream(methods.UPLOAD, requests)
                return resumed
            except errors.Error as error:
                await wait(delays, error, resumable(error, resumed > 0))
            resumed += 1
            start = chunks.resume_at(await session._get_buffer_message(buffer_id), at, start)

    async def _download_grpc(self, buffer_id: bytes, out: memoryview, at: int) -> int:
        session, resumed = self._session, 0
        receiver = chunks.Receiver(out, at)
        delays = session.transport.retry.delays()
        while not receiver.done:
            request = receiver.request(session.session_id, buffer_id, chunks.CHUNK_BYTES)
            try:
                async for message in session.transport.receive_stream(methods.DOWNLOAD, request):
                    receiver.accept(message)
                if not receiver.done:
                    raise errors.DataLoss(f"the stream ended after {receiver.received} bytes")
            except errors.Error as error:
                await wait(delays, error, resumable(error, False))
                resumed += 1
        return resumed


async def wait(delays: Iterator[float], error: errors.Error, again: bool) -> None:
    """Sleeps before another attempt, or raises `error` if it must not be or none is left."""
    delay = next(delays, None) if again else None
    if delay is None:
        try:
            raise error
        finally:
            del error  # see Transport.again
    await asyncio.sleep(delay)  # aio
    # sync: time.sleep(delay)


# aio {
async def run_lanes(lanes: int, pieces: Pieces, work: Callable[[int], Awaitable[None]]) -> None:
    """One that fails ends the others with the piece they are at, not in the middle of it."""

    async def run(lane: int) -> None:
        try:
            await work(lane)
        except BaseException:
            pieces.stop()
            raise

    running = [run(lane) for lane in range(lanes)]
    for ended in await asyncio.gather(*running, return_exceptions=True):
        if ended is not None:
            raise ended


# }
