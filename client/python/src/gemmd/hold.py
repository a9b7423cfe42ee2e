"""Hold: the stream that keeps a session alive, and ends it soon after this process dies."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any

import grpc

from gemmd import errors
from gemmd._wire import methods
from gemmd.transport import Transport
from gemmd.v1 import device_service_pb2 as device_pb
from gemmd.v1 import session_service_pb2 as pb

HEARTBEAT_S = 2.0


class Hold:
    """One Hold stream, opened and then left alone: its being there is what counts.

    A thread that waited for its events would be woken by gRPC with every answer to any call of the
    process (grpcio's threads poll all connections together), which costs a small call 20 us. So a
    heartbeat asks the server every two seconds whether it drains, and whether the session is held
    still: a stream that broke is opened anew. While it waits, gRPC also answers the pings by which
    the server notices clients that stopped.

    It knows nothing of the Session, which ends when nobody has it any more.
    """

    def __init__(self, transport: Transport, session_id: bytes) -> None:
        self._transport = transport
        self._session_id = session_id
        self.draining = False
        # Whether the session is to be closed. Not an Event: its lock would be taken twice by a
        # thread whose garbage collection finds the session in the middle of a wait.
        self._orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stream: Any = None
        self._open()
        threading.Thread(target=self._beat, name="gemmd-hold", daemon=True).start()

    def _open(self) -> None:
        request = pb.HoldRequest(session_id=self._session_id).SerializeToString()
        self._stream = self._transport.streams.unary_stream(methods.HOLD)(
            request, metadata=self._transport.metadata()
        )
        # Failing to hold is no reason to fail here: the next call meets the same trouble and tells.
        with contextlib.suppress(grpc.RpcError, StopIteration):
            next(self._stream)  # KIND_HELD: before it, a call could find the session not held yet

    def _beat(self) -> None:
        while not self._transport.closed:
            try:
                close = self._orders.get(timeout=HEARTBEAT_S)
            except queue.Empty:
                try:
                    self._look()
                except errors.NotFound:
                    return  # it has ended
                except errors.Error:
                    pass  # the next call tells
                continue
            if close:
                self._close_session()
            self._stream.cancel()
            return

    def _look(self) -> None:
        info = self._transport.ask(
            device_pb.GetServerInfoRequest(), device_pb.ServerInfo, HEARTBEAT_S
        )
        self.draining |= info.draining
        request = pb.KeepAliveRequest(session_id=self._session_id)
        answer = self._transport.ask(request, pb.KeepAliveResponse, HEARTBEAT_S)
        if answer.HasField("expire_time"):  # which one that is held has none
            self._open()

    def _close_session(self) -> None:
        request = pb.CloseSessionRequest(session_id=self._session_id)
        # What keeps it from that also cuts the stream.
        with contextlib.suppress(errors.Error, grpc.RpcError, ValueError):
            self._transport.ask(request, pb.CloseSessionResponse)

    def cancel(self) -> None:
        """The session has been closed."""
        self._orders.put(False)

    @property
    def ended(self) -> bool:
        """Whether there is nothing to close: the client is closed, and the server sees that."""
        return self._transport.closed

    def drop(self) -> None:
        """Closes a session that nobody has any more. Waits for nothing, and takes no lock: called
        by whichever thread collects garbage.
        """
        self._orders.put(True)
