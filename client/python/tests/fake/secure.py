"""A FakeServer with TLS in a process of its own: grpcio's server can crash when it is stopped after
handshakes that failed (1.78, seen once in some thirty runs), so this one is killed.

    python -m tests.fake.secure KEY CERTIFICATE [CLIENT_AUTHORITY]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grpc

from tests.fake.server import FakeServer

_PACKAGE = Path(__file__).parents[2]


class SecureServer:
    """Where it listens is `target`. With `client_authority` it asks for a certificate."""

    def __init__(self, key: Path, certificate: Path, client_authority: Path | None = None) -> None:
        files = [key, certificate, *([client_authority] if client_authority else [])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(os.fspath, files)],
            cwd=_PACKAGE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.target = self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def main(key: str, certificate: str, client_authority: str | None = None) -> None:
    authority = Path(client_authority).read_bytes() if client_authority else None
    pair = (Path(key).read_bytes(), Path(certificate).read_bytes())
    credentials = grpc.ssl_server_credentials(
        [pair], authority, require_client_auth=authority is not None
    )
    print(FakeServer("", credentials=credentials).target, flush=True)
    sys.stdin.read()  # until whoever started it is gone
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
