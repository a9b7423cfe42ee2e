"""Hold: the stream that keeps a session alive, and ends it soon after this process dies."""

from __future__ import annotations

import contextlib
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
    heartbeat asks the server every two seconds whether it drains; while it waits, gRPC also answers
    the pings by which the server notices clients that stopped.

    A stream that breaks is not taken up again: the session then lives for its grace, and every call
    prolongs it by its ttl.
    """

    def __init__(self, transport: Transport, session_id: bytes) -> None:
        self._transport = transport
        self.draining = False
        self._stopped = threading.Event()
        request = pb.HoldRequest(session_id=session_id).SerializeToString()
        self._stream: Any = transport.streams.unary_stream(methods.HOLD)(
            request, metadata=transport.metadata()
        )
        # Failing to hold is no reason to fail here: the next call meets the same trouble and tells.
        with contextlib.suppress(grpc.RpcError, StopIteration):
            next(self._stream)  # KIND_HELD: before it, a call could find the session not held yet
        threading.Thread(target=self._beat, name="gemmd-hold", daemon=True).start()

    def _beat(self) -> None:
        while not self._stopped.wait(HEARTBEAT_S) and not self._transport.closed:
            with contextlib.suppress(errors.Error):
                request = device_pb.GetServerInfoRequest()
                answer = self._transport.ask(request, device_pb.ServerInfo, HEARTBEAT_S)
                self.draining |= answer.draining

    def cancel(self) -> None:
        self._stopped.set()
        self._stream.cancel()
