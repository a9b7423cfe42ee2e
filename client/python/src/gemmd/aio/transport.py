"""Channels to one server for one event loop, and calls with errors mapped and safe retries done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from gemmd import errors
from gemmd._connection.forked import Home
from gemmd._connection.security import Security
from gemmd._connection.token_file import Metadata
from gemmd._connection.unary import bounded
from gemmd._wire import methods
from gemmd.retry import Retry, broken_connection
from gemmd.transport import Answer, channel_options


class Transport:
    """Two connections, one for calls and one for streams, opened when first used.

    Belongs to the event loop that used it first.
    """

    def __init__(
        self, target: str, timeout_s: float | None, retry: Retry, security: Security | None = None
    ) -> None:
        self.target = target
        self.home = Home()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.timeout_s = timeout_s
        self.retry = retry
        self.security = security or Security(target)
        self._channels: dict[str, Any] = {}
        self._before: list[Any] = []  # channels of earlier certificates: streams live on there
        self._calls: dict[str, Any] = {}

    def _open(self, purpose: str) -> Any:
        self.home.check()
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise RuntimeError(
                "this client of gemmd.aio belongs to another event loop, which called with it"
                " first; make one in each loop: asyncio.run opens a new one"
            )
        # Not in __init__: grpc.aio binds a channel to the running loop, and a client may be made
        # before there is one.
        if self.security.rotated():  # new connections once the files of TLS are new
            self._before += self._channels.values()
            self._channels, self._calls = {}, {}
        channel = self._channels.get(purpose)
        if channel is None:
            self.home.connects()
            channel = self.security.channel(
                channel_options(), grpc.aio.secure_channel, grpc.aio.insecure_channel
            )
            self._channels[purpose] = channel
        return channel

    def metadata(self) -> Metadata | None:
        """What goes with every call."""
        return self.security.metadata()

    @property
    def channel(self) -> Any:
        return self._open("calls")

    @property
    def streams(self) -> Any:
        return self._open("streams")

    def method(self, name: str) -> Any:
        """The unary call as grpc.aio offers it: bytes in, bytes out."""
        channel = self.channel  # asked first: it may forget the calls
        call = self._calls.get(name)
        if call is None:
            call = self._calls[name] = channel.unary_unary(name)
        return call

    async def call(self, name: str, request: bytes, timeout_s: float | None = None) -> bytes:
        """One unary call, in bytes. Retried if it is safe and the connection broke.

        Raises
        ------
        gemmd.Error
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        delays = self.retry.delays()
        while True:
            try:
                answer: bytes = await self.method(name)(
                    request, timeout=bounded(limit), metadata=self.metadata()
                )
                return answer
            except grpc.aio.AioRpcError as rpc_error:
                error = errors.from_rpc(rpc_error)
            safe = name in methods.SAFE_TO_REPEAT and broken_connection(error)
            delay = next(delays, None) if safe else None
            if delay is None:
                raise self.security.explained(error)
            await asyncio.sleep(delay)

    async def ask(
        self, request: Message, answer: type[Answer], timeout_s: float | None = None
    ) -> Answer:
        """The unary RPC that takes `request`, as `call`."""
        name = methods.of(type(request))
        return answer.FromString(await self.call(name, request.SerializeToString(), timeout_s))

    async def pages(self, request: Any, answer: type[Answer]) -> AsyncIterator[Answer]:
        """All answers of an RPC that answers in pages."""
        while True:
            page: Any = await self.ask(request, answer)
            yield page
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    async def send_stream(self, name: str, requests: Iterable[bytes]) -> bytes:
        """A client stream over the connection for streams. Not retried here: see transfer."""
        call = self.streams.stream_unary(name)(metadata=self.metadata())
        try:
            for request in requests:
                await call.write(request)
            await call.done_writing()
            answer: bytes = await call
            return answer
        except grpc.aio.AioRpcError as error:
            raise self.security.explained(errors.from_rpc(error)) from None
        except asyncio.InvalidStateError:  # the server ended the stream while we were writing
            raise await self._ended(call) from None

    async def _ended(self, call: Any) -> errors.Error:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return self.security.explained(errors.from_rpc(error))
        return errors.Unavailable("the server ended the stream early")

    async def receive_stream(self, name: str, request: bytes) -> AsyncIterator[bytes]:
        """A server stream over the connection for streams. Leaving the iterator cancels it."""
        call = self.streams.unary_stream(name)(request, metadata=self.metadata())
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise self.security.explained(errors.from_rpc(error)) from None
        finally:
            call.cancel()

    async def wait_ready(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.channel.channel_ready()
                if "streams" in self._channels:
                    await self.streams.channel_ready()
        except TimeoutError:
            raise await self._no_connection(timeout_s) from None

    async def _no_connection(self, timeout_s: float) -> errors.Error:
        """With gRPC's reason, which only a call that needs the connection is told."""
        message = f"no connection to {self.target} within {timeout_s} s"
        try:
            await self.method(methods.HEALTH)(b"", timeout=1.0)
        except grpc.aio.AioRpcError as error:
            message += f" ({self.security.explained(errors.from_rpc(error)).message})"
        return errors.Unavailable(message)

    async def close(self) -> None:
        if self.home.left:
            return  # a channel that is closed here would end the other process's connection
        for channel in (*self._channels.values(), *self._before):
            await channel.close()
        self._channels.clear()
        self._before.clear()
        self._calls.clear()
