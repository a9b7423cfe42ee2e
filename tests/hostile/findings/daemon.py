"""A gemmd of some build, and raw calls to it: what our clients would refuse to send is sent."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from gemmd.v1 import buffer_service_pb2 as buffers
from gemmd.v1 import compute_service_pb2 as compute
from gemmd.v1 import session_service_pb2 as sessions
from gemmd.v1 import types_pb2 as types

MIB = 1 << 20
_OPTIONS = [("grpc.max_receive_message_length", 64 * MIB), ("grpc.use_local_subchannel_pool", 1)]


@dataclasses.dataclass
class Programs:
    name: str
    build: pathlib.Path

    @property
    def gemmd(self) -> str:
        return str(self.build / "server/gemmd")

    @property
    def gemmctl(self) -> str:
        return str(self.build / "client/cli/gemmctl")


class Daemon:
    """Serves until the `with` ends. `launcher` stands in front of the command."""

    def __init__(self, programs: Programs, folder: pathlib.Path, config: str = "", tenants: tuple[str, ...] = (),
                 devices: str = 'devices { name: "cpu:0" threads: 1 memory_bytes: 1073741824 }',
                 launcher: tuple[str, ...] = (), before: Callable[[], None] | None = None) -> None:
        self.folder = folder
        self.log = folder / "log"
        ready, path = folder / "ready", folder / "config"
        names = ("default", *tenants)
        lines = [f'listeners {{ address: "{self.target(name)}" tenant: "{name}" unix_mode: 438 }}' for name in names]
        lines += [f'tenants {{ name: "{name}" }}' for name in names]
        lines += [devices, "drain { notice_ms: 50 limit_ms: 1000 }", config.replace("@DIR@", str(folder))]
        path.write_text("\n".join(lines), encoding="utf-8")
        folder.chmod(0o755)
        command = [*launcher, programs.gemmd, "--config", str(path), "--ready-file", str(ready)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, preexec_fn=before)
        end = time.monotonic() + 30
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise RuntimeError("gemmd does not start: " + self.log.read_text(errors="replace")[-500:])
            time.sleep(0.02)

    def target(self, tenant: str = "default") -> str:
        return f"unix:{self.folder}/{tenant}.sock"

    def resident_bytes(self) -> int:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(4)
        self.process.kill()
        self.process.wait()


class Wire:
    """One connection with a session."""

    def __init__(self, target: str) -> None:
        self.channel = grpc.insecure_channel(target, options=_OPTIONS)
        answer = self.call("SessionService/OpenSession", sessions.OpenSessionRequest(), sessions.OpenSessionResponse)
        self.session_id = answer.session_id

    def start(self, method: str, request: Any, answer: Any, timeout_s: float | None = 60) -> Any:
        """The call's future."""
        stub = self.channel.unary_unary(f"/gemmd.v1.{method}", request.__class__.SerializeToString, answer.FromString)
        return stub.future(request, timeout=timeout_s)

    def call(self, method: str, request: Any, answer: Any, timeout_s: float | None = 60) -> Any:
        return self.start(method, request, answer, timeout_s).result()

    def buffer(self, size_bytes: int, kind: int = buffers.MEMORY_KIND_DEVICE) -> bytes:
        request = buffers.CreateBufferRequest(session_id=self.session_id, size_bytes=size_bytes, memory_kind=kind)
        return bytes(self.call("BufferService/CreateBuffer", request, buffers.Buffer).buffer_id)

    def execute(self, ops: list[types.Op], timeout_s: float | None = 60) -> Any:
        """The future of it."""
        request = compute.ExecuteRequest(session_id=self.session_id, ops=ops)
        return self.start("ComputeService/Execute", request, compute.ExecuteResponse, timeout_s)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()


def view(buffer: bytes, shape: list[int], dtype: int = types.DTYPE_I8, strides: tuple[int, ...] = ()) -> types.Tensor:
    return types.Tensor(buffer_id=buffer, shape=shape, dtype=dtype, strides=strides)


def fill(buffer: bytes) -> types.Op:
    return types.Op(fill=types.Fill(dst=view(buffer, [16]), value=1))


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """The effective user of this process, for as long."""
    before = os.geteuid()
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)
