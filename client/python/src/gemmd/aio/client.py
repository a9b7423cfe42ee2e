"""Client: the way to one server."""

from __future__ import annotations

import asyncio  # aio
from typing import Any, Unpack

import gemmd.client  # aio
from gemmd import dtypes, share, words
from gemmd._connection.here_only import Awaited, Unpickled  # aio
from gemmd._connection.security import Security
from gemmd._connection.target import NOBODY_THERE, default_target
from gemmd._wire import methods, requests, wire

# sync: from gemmd._connection.here_only import Unpickled
from gemmd._wire.requests import ExplainKeywords
from gemmd.aio.hold import Hold  # aio
from gemmd.aio.opening import Opening  # aio
from gemmd.aio.session import Session, SharedMemory
from gemmd.aio.transport import Transport
from gemmd.errors import FailedPrecondition, Unavailable
from gemmd.retry import Retry
from gemmd.tls import Path, Tls
from gemmd.v1 import admin_service_pb2 as admin_pb
from gemmd.v1 import buffer_service_pb2 as buffer_pb
from gemmd.v1 import compute_service_pb2 as compute_pb
from gemmd.v1 import device_service_pb2 as pb
from gemmd.v1 import session_service_pb2 as session_pb


class Client(Unpickled, Awaited):
    """A connection to a gemmd. Thread-safe; make one a process and share it.

    Parameters
    ----------
    target : str, optional
        "127.0.0.1:8470", "unix:/run/gemmd/gemmd.sock", "unix-abstract:gemmd": as gRPC has it. A
        Unix socket is quickest. By default the environment's GEMMD_SERVER; without it the socket of
        a local gemmd that was started without an address; else 127.0.0.1:8470.
    timeout_s : float or None
        Deadline of every call that names none. None waits for ever. Transfers have none: they end
        when the bytes stop.
    retry : Retry
        How calls are tried again that can do no harm twice.
    tls : Tls, optional
        Makes a TCP connection private. Default: plaintext.
    token_file : path, optional
        A file that holds a bearer token and nothing else, read again within a second when it
        changes. Goes over TLS, Unix sockets and loopback.
    send_token_in_plaintext : bool
        Lets it go further without TLS.

    Raises
    ------
    ValueError
        For options that contradict each other or the target, a file that is not what it is given
        as, or a token that would travel where others can read it.
    OSError
        For a file that cannot be read.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        timeout_s: float | None = 60.0,
        retry: Retry | None = None,
        tls: Tls | None = None,
        token_file: Path | None = None,
        send_token_in_plaintext: bool = False,
    ) -> None:
        target = default_target() if target is None else target
        security = Security(target, tls, token_file, send_token_in_plaintext)
        self.transport = Transport(target, timeout_s, retry or Retry(), security)
        self._info: pb.ServerInfo | None = None
        # aio {
        self._threads: gemmd.client.Client | None = None
        self._thread_options: dict[str, Any] = {
            "timeout_s": timeout_s,
            "retry": retry,
            "tls": tls,
            "token_file": token_file,
            "send_token_in_plaintext": send_token_in_plaintext,
        }
        # }

    _elsewhere = "connect in each process, gemmd.connect()"

    def __repr__(self) -> str:
        return f"Client({self.transport.target})"

    def session(
        self,
        *,
        ttl_s: float | None = None,
        label: str = "",
        device: str = "",
        grace_s: float | None = None,
        hold: bool = True,
        shared_memory: SharedMemory = "auto",
    ) -> Opening[Session]:
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
        # sync: return self._open_session(
        # sync:     ttl_s, label, device, grace_s, shared_memory=shared_memory, hold=hold)
        # aio {
        return Opening(
            lambda: self._open_session(
                ttl_s, label, device, grace_s, shared_memory=shared_memory, hold=hold
            )
        )
        # }

    async def _open_session(self, *about: Any, shared_memory: SharedMemory, hold: bool) -> Session:
        request = requests.open_session(*about)
        message = await self.transport.ask(request, session_pb.OpenSessionResponse)
        held = await Hold.open(self.transport, message.session_id) if hold else None  # aio
        return Session(self, message, shared_memory, held)  # aio
        # sync: return Session(self, message, shared_memory, hold)

    async def info(self, refresh: bool = False) -> pb.ServerInfo:
        """Version, tenant, limits, share_socket. Asked once; `refresh` asks again."""
        if self._info is None or refresh:
            self._info = await self.transport.ask(pb.GetServerInfoRequest(), pb.ServerInfo)
        return self._info

    async def share_socket(self) -> str:
        """Where to exchange descriptors with the server. FailedPrecondition if that is not possible
        from here.
        """
        address = (await self.info()).share_socket
        if why := await asyncio.to_thread(share.unreachable, address):
            raise FailedPrecondition(f"no shared memory with this server: {why}")
        return address

    async def devices(self) -> list[pb.Device]:
        """What the server owns, and how busy it is."""
        answer = await self.transport.ask(pb.ListDevicesRequest(), pb.ListDevicesResponse)
        return list(answer.devices)

    async def kernels(self, device: str = "") -> list[pb.Kernel]:
        """Kernels of a device, or of all."""
        request = pb.ListKernelsRequest(device=device)
        return list((await self.transport.ask(request, pb.ListKernelsResponse)).kernels)

    async def switch_version(self, name: str, version: int) -> int:
        """Makes a version of published weights current: "m/w" is "m@2/w" from now on, for all names
        of "m" at once. Sessions that hold buffers of another version keep to that. Returns the
        version that was current; 0 if none was.

        Raises
        ------
        NotFound
            Nothing is published as that version.
        """
        request = buffer_pb.SwitchVersionRequest(name=name, version=version)
        answer = await self.transport.ask(request, buffer_pb.SwitchVersionResponse)
        return answer.previous_version

    async def published(self) -> list[buffer_pb.Buffer]:
        """What the tenant has published, by name. Ids are empty: ``session.find`` has handles."""
        pages = self.transport.pages(
            buffer_pb.ListPublishedRequest(), buffer_pb.ListPublishedResponse
        )
        return [one async for page in pages for one in page.buffers]

    async def sessions(self) -> list[session_pb.SessionInfo]:
        """The tenant's sessions, oldest first."""
        pages = self.transport.pages(
            session_pb.ListSessionsRequest(), session_pb.ListSessionsResponse
        )
        return [one async for page in pages for one in page.sessions]

    async def explain(
        self,
        m: int,
        n: int,
        k: int,
        *,
        batch: int = 1,
        dtype: dtypes.DTypeLike | None = None,
        quantize: str | None = None,
        device: str = "",
        **options: Unpack[ExplainKeywords],
    ) -> compute_pb.ExplainResponse:
        """Every kernel that could serve a matmul, best first, and why the rest cannot.

        Parameters
        ----------
        dtype : DTypeLike, optional
            Of the factors, unless `quantize` (as in `session.matmul`) says it. Default float32.
        **options
            out_dtype, activation, b_dtype, b_is_kn, has_c, has_bias, gate. With `groups`, the number of a
            grouped matmul's matrices: layout, gate, weights_apart, expected_rows, out_dtype,
            activation and has_bias, as `grouped_matmul` has them. With `along_k` besides, of a
            `k_grouped_matmul`: layout ("ends" by default, of groups from multiples of 128 on),
            has_c, b_dtype, out_dtype.
        """
        request = requests.explain(m, n, k, batch, dtype, quantize, device, dict(options))
        return await self.transport.ask(request, compute_pb.ExplainResponse)

    async def health(self, service: str = "") -> str:
        """Of the server, or of a device ("cpu:0"): "serving", "not serving", "unknown". NotFound
        when there is no such device. Needs no credentials.
        """
        request = wire.field(1, words.text("service", service).encode()) if service else b""
        answer = await self.transport.call(methods.HEALTH, request)
        return {b"\x08\x01": "serving", b"\x08\x02": "not serving"}.get(answer, "unknown")

    async def log(
        self, level: str | None = None, sample_calls: int | None = None
    ) -> admin_pb.LogSettings:
        """What the server logs; with arguments, after changing it. For observers and admins, a
        change for admins: PermissionDenied.
        """
        if level is None and sample_calls is None:
            return await self.transport.ask(admin_pb.GetLogRequest(), admin_pb.LogSettings)
        change = admin_pb.SetLogRequest(level=level or "", sample_calls=sample_calls)
        return await self.transport.ask(change, admin_pb.LogSettings)

    async def end_session(self, name: str) -> None:
        """Ends a session of any tenant, by the name that `sessions` shows. For admins."""
        request = admin_pb.EndSessionRequest(name=name)
        await self.transport.ask(request, admin_pb.EndSessionResponse)

    # aio {
    def on_threads(self) -> gemmd.client.Client:
        """The same for threads, over connections of its own."""
        if self._threads is None:
            self._threads = gemmd.client.Client(self.transport.target, **self._thread_options)
        return self._threads

    # }
    async def wait_ready(self, timeout_s: float = 10.0) -> Client:
        """Waits for a connection, also to a server that has been away: for up to a second after it
        is back calls fail still. Unavailable if there is none in time.
        """
        await self.transport.wait_ready(timeout_s)
        return self

    async def close(self) -> None:
        """Closes the connections. Held sessions end after their grace."""
        # aio {
        if self._threads is not None:
            await asyncio.to_thread(self._threads.close)
        # }
        await self.transport.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect(
    target: str | None = None,
    *,
    connect_timeout_s: float = 10.0,
    timeout_s: float | None = 60.0,
    retry: Retry | None = None,
    tls: Tls | None = None,
    token_file: Path | None = None,
    send_token_in_plaintext: bool = False,
) -> Client:
    """A `Client` whose server is there: `with gemmd.connect() as client`.

    Parameters
    ----------
    connect_timeout_s : float
        How long to wait for it.

    Raises
    ------
    Unavailable
        Nobody answers at `target` in that time.
    """
    client = Client(
        target, timeout_s=timeout_s, retry=retry, tls=tls, token_file=token_file,
        send_token_in_plaintext=send_token_in_plaintext,
    )  # fmt: skip
    try:
        return await client.wait_ready(connect_timeout_s)
    except Unavailable as error:
        await client.close()
        told = NOBODY_THERE in error.message
        raise Unavailable(error.message if told else f"{error.message}; {NOBODY_THERE}") from None
