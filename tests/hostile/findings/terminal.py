"""Point 11: a server that lies and a file that does, and the bytes that reach a terminal through gemmctl."""

from __future__ import annotations

import contextlib
import json
import pathlib
import struct
import subprocess
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from daemon import Daemon, Programs
from gemmd.v1 import buffer_service_pb2 as buffers
from gemmd.v1 import device_service_pb2 as device
from gemmd.v1 import session_service_pb2 as sessions

TITLE = "\x1b]0;title\x07"  # names the terminal's window


def answers() -> dict[str, Any]:
    info = device.ServerInfo(version=TITLE, instance_id=TITLE, tenant=TITLE)
    named = device.Device(name=TITLE, model=TITLE, architecture=TITLE, state=device.Device.STATE_SERVING)
    kernel = device.Kernel(name=TITLE, device=TITLE)
    session = sessions.SessionInfo(name=TITLE, label=TITLE, device=TITLE, peer=TITLE, tenant=TITLE)
    return {
        "DeviceService/GetServerInfo": info,
        "DeviceService/ListDevices": device.ListDevicesResponse(devices=[named]),
        "DeviceService/ListKernels": device.ListKernelsResponse(kernels=[kernel]),
        "SessionService/ListSessions": sessions.ListSessionsResponse(sessions=[session]),
        "BufferService/ListPublished": buffers.ListPublishedResponse(
            buffers=[buffers.Buffer(published_name=TITLE, label=TITLE, device=TITLE)]),
    }


class Liar(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        answer = answers().get(details.method.removeprefix("/gemmd.v1."))
        if details.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x08\x01")

        def answered(request: bytes, context: grpc.ServicerContext) -> bytes:
            if answer is None:
                context.abort(grpc.StatusCode.NOT_FOUND, TITLE)
            return bytes(answer.SerializeToString())

        return grpc.unary_unary_rpc_method_handler(answered)


@contextlib.contextmanager
def lying_server(folder: pathlib.Path) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Liar()])
    target = f"unix:{folder}/liar.sock"
    server.add_insecure_port(target)
    server.start()
    try:
        yield target
    finally:
        server.stop(None).wait()


def lying_file(folder: pathlib.Path) -> str:
    header = json.dumps({"x": {"dtype": TITLE, "shape": [1], "data_offsets": [0, 4]}}).encode()
    path = folder / "lying.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    return str(path)


def is_shown_raw(command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    return any(byte < 0x20 and byte != 0x0A or byte == 0x7F for byte in done.stdout + done.stderr)


def look(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    raw = []
    with lying_server(folder) as liar:
        for command in (["info"], ["kernels"], ["sessions"], ["buffers"], ["explain", "--m", "1", "--n", "1", "--k", "1"]):
            if is_shown_raw([programs.gemmctl, *command, "--server", liar]):
                raw.append(command[0])
    with Daemon(programs, folder) as daemon:
        if is_shown_raw([programs.gemmctl, "upload", lying_file(folder) + ":x", "--server", daemon.target()]):
            raw.append("a file's dtype")
    return not raw, "raw: " + ", ".join(raw) if raw else "all escaped"
