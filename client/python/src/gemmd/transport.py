"""Channels to one server, and calls over them with errors mapped and safe retries done."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import grpc.experimental

from gemmd import errors, methods
from gemmd.retry import Retry, broken_connection
from gemmd.unary import UnaryCall, unary_call

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
    ]


class Transport:
    """Two connections, one for calls and one for streams, opened when first used. Thread-safe.

    On one connection, calls would wait behind the chunks of a transfer.
    """

    def __init__(self, target: str, timeout_s: float | None, retry: Retry) -> None:
        self.target = target
        self.timeout_s = timeout_s
        self.retry = retry
        self.channel = grpc.insecure_channel(target, options=channel_options())
        self._streams: grpc.Channel | None = None
        self._opening = threading.Lock()
        self._calls: dict[str, UnaryCall] = {}

    @property
    def streams(self) -> grpc.Channel:
        with self._opening:
            if self._streams is None:
                # Server streams are read by the thread that wants them, not by one of grpcio's.
                single = (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)
                options = [*channel_options(), single]
                self._streams = grpc.insecure_channel(self.target, options=options)
            return self._streams

    def method(self, name: str) -> UnaryCall:
        """A unary call, bytes in and bytes out, tried once."""
        call = self._calls.get(name)
        if call is None:
            call = self._calls[name] = unary_call(self.channel, name)
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

    def again(self, name: str, request: bytes, limit: float | None, error: errors.Error) -> bytes:
        """After a first attempt failed with `error`: raises it, or tries the rest of the
        attempts.
        """
        if name not in methods.SAFE_TO_REPEAT:
            raise error
        for delay in self.retry.delays():
            if not broken_connection(error):
                break
            time.sleep(delay)
            try:
                return self.method(name)(request, limit)
            except errors.Error as next_error:
                error = next_error
        raise error

    def send_stream(self, name: str, requests: Iterable[bytes]) -> bytes:
        """A client stream over the connection for streams. Not retried here: see transfer."""
        try:
            answer: bytes = self.streams.stream_unary(name)(iter(requests))
            return answer
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None

    def receive_stream(self, name: str, request: bytes) -> Iterator[bytes]:
        """A server stream over the connection for streams. Leaving the iterator cancels it."""
        call = self.streams.unary_stream(name)(request)
        try:
            yield from call
        except grpc.RpcError as error:
            raise errors.from_rpc(error) from None
        finally:
            call.cancel()

    def wait_ready(self, timeout_s: float) -> None:
        try:
            grpc.channel_ready_future(self.channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            message = f"no connection to {self.target} within {timeout_s} s"
            raise errors.Unavailable(message) from None

    def close(self) -> None:
        self.channel.close()
        if self._streams is not None:
            self._streams.close()
