"""The fake's share socket: hands out descriptors for tokens and takes descriptors in."""

from __future__ import annotations

import contextlib
import os
import socket
import threading


class ShareSocket:
    def __init__(self, path: str) -> None:
        self.address = f"unix:{path}"
        self.granted: dict[bytes, int] = {}  # token to descriptor, from ExportBuffer
        self.received: dict[bytes, int] = {}  # token to descriptor, for ImportBuffer
        self.exchanges: list[str] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def grant(self, descriptor: int) -> bytes:
        token = os.urandom(16)
        self.granted[token] = os.dup(descriptor)
        return token

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for descriptor in (*self.granted.values(), *self.received.values()):
            os.close(descriptor)

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with link:
                message, descriptors, _, _ = socket.recv_fds(link, 64, 1)
                self.exchanges.append(message[:1].decode())
                if message[:1] == b"G":
                    self._give(link, message[1:])
                elif message[:1] == b"P":
                    token = os.urandom(16)
                    self.received[token] = descriptors[0]
                    link.sendall(b"\0" + token)

    def _give(self, link: socket.socket, token: bytes) -> None:
        descriptor = self.granted.pop(token, None)
        if descriptor is None:
            link.sendall(b"\1token unknown, used or expired")
            return
        socket.send_fds(link, [b"\0"], [descriptor])
        os.close(descriptor)
