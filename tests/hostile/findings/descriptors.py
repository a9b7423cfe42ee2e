"""Point 14: the log of a Unix listener that has no descriptor left."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import time

from daemon import Daemon, Programs

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # and empty SETTINGS
NOFILE = 64


def look(programs: Programs, folder: pathlib.Path) -> tuple[bool, str]:
    launcher = ("prlimit", f"--nofile={NOFILE}:{NOFILE}")
    with Daemon(programs, folder, launcher=launcher) as daemon, contextlib.ExitStack() as held:
        path = daemon.target().removeprefix("unix:")
        for _ in range(2 * NOFILE):
            peer = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            peer.settimeout(2)
            with contextlib.suppress(OSError):  # a listener may close it
                peer.connect(path)
                peer.sendall(PREFACE)
        time.sleep(1)
        before = daemon.log.read_bytes().count(b"\n")
        time.sleep(5)
        lines = daemon.log.read_bytes().count(b"\n") - before
        return lines <= 10, f"{lines} lines in 5 s"
