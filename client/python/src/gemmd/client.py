"""Client: the way to one server."""

from __future__ import annotations

from typing import Any

from gemmd import dtypes, methods, requests, share
from gemmd.errors import FailedPrecondition
from gemmd.retry import Retry
from gemmd.session import Session, SharedMemory
from gemmd.transport import Transport
from gemmd.v1 import buffer_service_pb2 as buffer_pb
from gemmd.v1 import compute_service_pb2 as compute_pb
from gemmd.v1 import device_service_pb2 as pb
from gemmd.v1 import session_service_pb2 as session_pb


class Client:
    """A connection to a gemmd. Thread-safe; make one a process and share it.

    Parameters
    ----------
    target : str
        "127.0.0.1:8470", "unix:/run/gemmd/gemmd.sock", "unix-abstract:gemmd": as gRPC has it. A
        Unix socket is quickest.
    timeout_s : float or None
        Deadline of every call that names none. None waits for ever. Transfers have none: they end
        when the bytes stop.
    retry : Retry
        How calls are tried again that can do no harm twice.
    """

    def __init__(
        self, target: str, *, timeout_s: float | None = 60.0, retry: Retry | None = None
    ) -> None:
        self.transport = Transport(target, timeout_s, retry or Retry())
        self._info: pb.ServerInfo | None = None

    def session(
        self,
        *,
        ttl_s: float | None = None,
        label: str = "",
        device: str = "",
        grace_s: float | None = None,
        hold: bool = True,
        shared_memory: SharedMemory = "auto",
    ) -> Session:
        """Opens a session.

        Parameters
        ----------
        ttl_s : float, optional
            The session ends after this long without a call. The server's default and bounds apply.
        label : str
            For people. At most 64 bytes of printable ASCII.
        device : str
            "cpu:0"; by default the server chooses.
        grace_s : float, optional
            How long a held session survives this process.
        hold : bool
            Keep the session alive by a stream while this process lives. Without it, call something
            within each ttl.
        shared_memory : {"auto", "off", "require"}
            Whether transfers use memory shared with a server on this host.

        Raises
        ------
        ResourceExhausted
            At the tenant's session limit.
        Unavailable
            The server is not there, or draining.
        """
        request = requests.open_session(ttl_s, label, device, grace_s)
        answer = self.transport.call(methods.OPEN_SESSION, request.SerializeToString())
        opened = session_pb.OpenSessionResponse.FromString(answer)
        return Session(self, opened, shared_memory, hold)

    def info(self, refresh: bool = False) -> pb.ServerInfo:
        """Version, tenant, limits, share_socket. Asked once; `refresh` asks again."""
        if self._info is None or refresh:
            answer = self.transport.call(methods.SERVER_INFO, b"")
            self._info = pb.ServerInfo.FromString(answer)
        return self._info

    def share_socket(self) -> str:
        """Where to exchange descriptors with the server. FailedPrecondition if that is not possible
        from here.
        """
        address = self.info().share_socket
        if why := share.unreachable(address):
            raise FailedPrecondition(f"no shared memory with this server: {why}")
        return address

    def devices(self) -> list[pb.Device]:
        """What the server owns, and how busy it is."""
        answer = self.transport.call(methods.LIST_DEVICES, b"")
        return list(pb.ListDevicesResponse.FromString(answer).devices)

    def kernels(self, device: str = "") -> list[pb.Kernel]:
        """Kernels of a device, or of all."""
        request = pb.ListKernelsRequest(device=device).SerializeToString()
        answer = self.transport.call(methods.LIST_KERNELS, request)
        return list(pb.ListKernelsResponse.FromString(answer).kernels)

    def sessions(self) -> list[session_pb.SessionInfo]:
        """The tenant's sessions, oldest first."""
        found: list[session_pb.SessionInfo] = []
        request = session_pb.ListSessionsRequest()
        while True:
            answer = session_pb.ListSessionsResponse.FromString(
                self.transport.call(methods.LIST_SESSIONS, request.SerializeToString())
            )
            found += answer.sessions
            request.page_token = answer.next_page_token
            if not request.page_token:
                return found

    def published(self) -> list[buffer_pb.Buffer]:
        """What the tenant has published, by name. Ids are empty: ``session.find`` gives a handle."""
        found: list[buffer_pb.Buffer] = []
        request = buffer_pb.ListPublishedRequest()
        while True:
            answer = buffer_pb.ListPublishedResponse.FromString(
                self.transport.call(methods.LIST_PUBLISHED, request.SerializeToString())
            )
            found += answer.buffers
            request.page_token = answer.next_page_token
            if not request.page_token:
                return found

    def explain(
        self,
        m: int,
        n: int,
        k: int,
        *,
        batch: int = 1,
        dtype: dtypes.DTypeLike | None = None,
        quantize: str | None = None,
        device: str = "",
        **options: Any,
    ) -> compute_pb.ExplainResponse:
        """Every kernel that could serve a matmul, best first, and why the rest cannot.

        Parameters
        ----------
        dtype : DTypeLike, optional
            Of the factors, unless `quantize` (as in `session.matmul`) says it. Default float32.
        **options
            out_dtype, activation, b_is_kn, has_c, has_bias.
        """
        request = requests.explain(m, n, k, batch, dtype, quantize, device, options)
        answer = self.transport.call(methods.EXPLAIN, request.SerializeToString())
        return compute_pb.ExplainResponse.FromString(answer)

    def wait_ready(self, timeout_s: float = 10.0) -> Client:
        """Waits for a connection. Unavailable if there is none in time."""
        self.transport.wait_ready(timeout_s)
        return self

    def close(self) -> None:
        """Closes the connections. Held sessions end after their grace."""
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
