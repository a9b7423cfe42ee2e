"""Point 13: one hoards what the share socket keeps for 10 s, and another needs one of it. Needs root, to be two users."""

from __future__ import annotations

import os
import pathlib

import grpc
from daemon import Daemon, Programs, Wire, as_user
from gemmd import errors, share
from gemmd.v1 import buffer_service_pb2 as buffers

NOBODY = 65534
MOST = 2000  # more than any build keeps


def users(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    config = 'share { socket_path: "@DIR@/share.sock" }'
    with Daemon(programs, folder, config):
        socket = f"unix:{folder}/share.sock"
        (folder / "share.sock").chmod(0o777)
        memory = os.memfd_create("x", os.MFD_ALLOW_SEALING)
        kept = 0
        with as_user(NOBODY):
            try:
                for _ in range(MOST):
                    share.offer_descriptor(socket, memory)
                    kept += 1
            except errors.Error:
                pass
        try:
            share.offer_descriptor(socket, memory)
            other = "another's is taken"
        except errors.Error as error:
            other = f"another's is refused: {str(error)[:60]}"
        os.close(memory)
        return "is taken" in other, f"one user has {kept} waiting; {other}"


def export(wire: Wire, buffer: bytes) -> str:
    """"" or why not."""
    request = buffers.ExportBufferRequest(session_id=wire.session_id, buffer_id=buffer, writable=True)
    try:
        wire.call("BufferService/ExportBuffer", request, buffers.ExportBufferResponse)
    except grpc.RpcError as error:
        return f"{error.code().name} {str(error.details())[:60]}"
    return ""


def tenants(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    with Daemon(programs, folder, tenants=("other",)) as daemon:
        with Wire(daemon.target()) as hoarder, Wire(daemon.target("other")) as other:
            theirs, mine = (one.buffer(4096, buffers.MEMORY_KIND_HOST_SHARED) for one in (hoarder, other))
            kept = 0
            while kept < MOST and not export(hoarder, theirs):
                kept += 1
            why = export(other, mine)
            return not why, f"one tenant has {kept} waiting; another's is " + (f"refused: {why}" if why else "given")
