"""Security: what a client's connections and calls need to be private and to say who calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from gemmd._connection import target as targets
from gemmd._connection.token_file import Metadata, TokenFile
from gemmd.errors import Error, ResourceExhausted, Unavailable
from gemmd.tls import Path, Tls, explain

_BETWEEN_LOOKS_S = 1.0
_RENEWAL_S = 0.5
# gRPC's words.
_TOO_LARGE = "message larger than max"
_NO_GRPC = ("Failed parsing HTTP/2", "connect an http1.x server")
_NOT_REACHED = ("failed to connect to all addresses", "DNS resolution failed")
_CUT = (
    "Socket closed", "Broken pipe", "onnection reset", "GOAWAY", "Internal error from Core",
    "Stream removed", "Endpoint closing",
)  # fmt: skip


LARGER = (
    "larger arrays than a message holds go by session.upload or buffer.upload, and come by"
    " buffer.download"
)


class Security:
    """Of one client. ValueError for what contradicts itself or the target, or would send a token
    where others can read it; OSError for a file that cannot be read.
    """

    def __init__(
        self,
        target: str,
        tls: Tls | None = None,
        token_file: Path | None = None,
        send_token_in_plaintext: bool = False,
    ) -> None:
        targets.check(target, tls is not None)
        self._target = target
        self.tls = tls
        self._token = None
        self._looked = time.monotonic()
        self._stamps: tuple[object, ...] = ()
        if tls is not None:
            if targets.is_unix_socket(target):
                raise ValueError(
                    f"TLS is for TCP, and {target} is a Unix socket: leave tls out, the kernel "
                    "guards it"
                )
            tls.check(_RENEWAL_S)
            self._stamps = tls.stamps()
        if token_file is not None:
            local = targets.stays_on_host(target)
            if tls is None and not local and not send_token_in_plaintext:
                raise ValueError(
                    f"the token of {token_file} would travel to {target} in plaintext, for anybody "
                    "on the way to take; give tls, use a Unix socket or loopback, or allow it by "
                    "send_token_in_plaintext"
                )
            self._token = TokenFile(token_file)

    def metadata(self) -> Metadata | None:
        """What goes with every call."""
        return None if self._token is None else self._token.current()

    def channel(
        self,
        options: Sequence[tuple[str, Any]],
        secure: Callable[..., Any] = grpc.secure_channel,
        plain: Callable[..., Any] = grpc.insecure_channel,
    ) -> Any:
        """A channel of grpc or, given its two functions, of grpc.aio."""
        extra: list[tuple[str, Any]] = []
        if targets.stays_on_host(self._target):
            # The environment's proxy would have what was meant to stay on this host.
            extra.append(("grpc.enable_http_proxy", 0))
        if self.tls is None:
            return plain(self._target, options=[*options, *extra])
        if self.tls.server_name:
            extra.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return secure(self._target, self.tls.credentials(), options=[*options, *extra])

    def rotated(self) -> bool:
        """True once after the files of TLS were replaced by others that can be used. gRPC keeps
        what a channel was made with, so that takes a new one.
        """
        if self.tls is None or time.monotonic() - self._looked < _BETWEEN_LOOKS_S:
            return False
        self._looked = time.monotonic()
        stamps = self.tls.stamps()
        if stamps == self._stamps:
            return False
        try:
            self.tls.check()
        except (OSError, ValueError):  # half written: what there was serves on
            return False
        self._stamps = stamps
        return True

    def explained(self, error: Error) -> Error:
        """The same error, with cause and remedy where gRPC is to blame."""
        if isinstance(error, ResourceExhausted) and _TOO_LARGE in error.message:
            error.message += f"; {LARGER}"
            error.args = (error.message,)
        if isinstance(error, Unavailable) and not error.reason:
            why = explain(self.tls, self._target, error.message)
            if not why and any(one in error.message for one in _NO_GRPC):
                why = f"what answers at {self._target} is no gemmd; {targets.NOBODY_THERE}"
            elif not why and error.message.startswith(_NOT_REACHED):
                why = f"nobody answers at {self._target}; {targets.NOBODY_THERE}"
            elif not why and any(one in error.message for one in _CUT):
                why = (
                    f"the connection to {self._target} broke, and the call may have run; if gemmd"
                    " has ended, open a session of the one that serves now"
                )
            if why and why not in error.message:
                error.message = f"{error.message}: {why}"
                error.args = (error.message,)
        return error
