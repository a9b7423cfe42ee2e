"""Channels to one server, and calls over them with errors mapped and safe retries done."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import grpc
import grpc.experimental
from google.protobuf.message import Message

from gemmd import errors
from gemmd._connection.forked import Home
from gemmd._connection.security import Security
from gemmd._connection.token_file import Metadata
from gemmd._connection.unary import UnaryCall, closed, closed_client, unary_call, unlock
from gemmd._wire import methods
from gemmd.retry import Retry, broken_connection

Answer = TypeVar("Answer", bound=Message)

_MAX_MESSAGE_BYTES = (
    64 << 20
)  # the largest that a server can be configured to: limits.max_message_bytes


def channel_options() -> list[tuple[str, Any]]:
    """Options of every channel."""
    return [
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        # Without this, all channels of a process to one target share one connection.
        ("grpc.use_local_subchannel_pool", 1),
        # A server that was away is found in seconds; gRPC's own waits between tries grow to 120.
        ("grpc.initial_reconnect_backoff_ms", 20),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]


class Transport:
    """Two connections, one for calls and one for streams, opened when first used. Thread-safe.

    On one connection, calls would wait behind the chunks of a transfer.
    """

    def __init__(
        self, target: str, timeout_s: float | None, retry: Retry, security: Security | None = None
    ) -> None:
        self.target = target
        self.home = Home()
        self.closed = False
        self.timeout_s = timeout_s
        self.retry = retry
        self.security = security or Security(target)
        self.channel = self.security.channel(channel_options())
        self._streams: grpc.Channel | None = None
        self._before: list[grpc.Channel] = []  # of earlier certificates: streams live on there
        self._opening = threading.Lock()
        self._calls: dict[str, UnaryCall] = {}

    @property
    def streams(self) -> grpc.Channel:
        self.home.check()
        self._follow()
        with self._opening:
            if self._streams is None:
                self.home.connects()
                # Server streams are read by the thread that wants them, not by one of grpcio's.
                single = (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)
                self._streams = self.security.channel([*channel_options(), single])
            return self._streams

    def _follow(self) -> None:
        """New connections once the files of TLS are new."""
        if self.security.tls is None:
            return
        with self._opening:
            if not self.security.rotated():
                return
            self._before.append(self.channel)
            if self._streams is not None:
                self._before.append(self._streams)
            self.channel, self._streams = self.security.channel(channel_options()), None
            self._calls = {}

    def metadata(self) -> Metadata | None:
        """What goes with every call that is made without `method`."""
        return self.security.metadata()

    def method(self, name: str) -> UnaryCall:
        """A unary call, bytes in and bytes out, tried once."""
        self.home.check()
        self._follow()
        call = self._calls.get(name)
        if call is None:
            self.home.connects()
            call = unary_call(self.channel, name, self.security.metadata)
            self._calls[name] = call
        return call

    def call(self, name: str, request: bytes, timeout_s: float | None = None) -> bytes:
        """One unary call, in bytes. Retried if it is safe and the connection broke.

        Raises
        ------
        gemmd.Error
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            return self.method(name)(request, limit)
        except errors.Error as error:
            return self.again(name, request, limit, error)

    def ask(
        self, request: Message, answer: type[Answer], timeout_s: float | None = None
    ) -> Answer:
        """The unary RPC that takes `request`, as `call`."""
        name = methods.of(type(request))
        return answer.FromString(self.call(name, request.SerializeToString(), timeout_s))

    def pages(self, request: Any, answer: type[Answer]) -> Iterator[Answer]:
        """All answers of an RPC that answers in pages."""
        while True:
            page: Any = self.ask(request, answer)
            yield page
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    def again(self, name: str, request: bytes, limit: float | None, error: errors.Error) -> bytes:
        """After a first attempt failed with `error`: raises it, or tries the rest of the
        attempts.
        """
        try:
            if name not in methods.SAFE_TO_REPEAT:
                raise self.security.explained(error)
            for delay in self.retry.delays():
                if not broken_connection(error):
                    break
                time.sleep(delay)
                try:
                    return self.method(name)(request, limit)
                except errors.Error as next_error:
                    error = next_error
            raise self.security.explained(error)
        finally:
            # Its traceback has this frame, and with it the arrays of all callers: in a cycle they
            # would stay until the garbage collector comes.
            del error

    def send_stream(self, name: str, requests: Iterable[bytes]) -> bytes:
        """A client stream over the connection for streams. Not retried here: see transfer."""
        try:
            answer: bytes = self.streams.stream_unary(name)(
                iter(requests), metadata=self.metadata()
            )
            return answer
        except grpc.RpcError as error:
            raise self.security.explained(errors.from_rpc(error)) from None
        except ValueError as error:
            raise closed(error) from None
        except BaseException as error:
            unlock(error)
            raise

    def receive_stream(self, name: str, request: bytes) -> Iterator[bytes]:
        """A server stream over the connection for streams. Leaving the iterator cancels it."""
        call = None
        try:
            call = self.streams.unary_stream(name)(request, metadata=self.metadata())
            yield from call
        except grpc.RpcError as error:
            raise self.security.explained(errors.from_rpc(error)) from None
        except ValueError as error:
            raise closed(error) from None
        except BaseException as error:
            unlock(error)
            raise
        finally:
            if call is not None:
                call.cancel()

    def wait_ready(self, timeout_s: float) -> None:
        self.home.connects()
        if self.closed:
            raise closed_client()
        until = time.monotonic() + timeout_s
        try:
            for channel in (self.channel, self._streams):
                if channel is not None:
                    left = max(until - time.monotonic(), 0.0)
                    grpc.channel_ready_future(channel).result(timeout=left)
        except grpc.FutureTimeoutError:
            raise self._no_connection(timeout_s) from None
        except BaseException as error:
            unlock(error)
            raise

    def _no_connection(self, timeout_s: float) -> errors.Error:
        """With gRPC's reason, which only a call that needs the connection is told."""
        message = f"no connection to {self.target} within {timeout_s} s"
        try:
            self.method(methods.HEALTH)(b"", 1.0)
        except errors.Error as error:
            message += f" ({self.security.explained(error).message})"
        return errors.Unavailable(message)

    def close(self) -> None:
        if self.home.left:
            return  # a channel that is closed here would end the other process's connection
        self.closed = True
        for channel in (self.channel, self._streams, *self._before):
            if channel is not None:
                channel.close()
