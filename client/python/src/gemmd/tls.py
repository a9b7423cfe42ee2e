"""What makes a TCP connection private and tells the two sides who they are."""

from __future__ import annotations

import os
import ssl
import time
from dataclasses import dataclass

import grpc

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Tls:
    """PEM files, read again within a second when they change: new connections take what is new,
    those that stand stay.

    Attributes
    ----------
    ca : path, optional
        Who signs servers. Default: this system's authorities.
    cert, key : path, optional
        This client's own certificate, with its intermediates, and its key without a passphrase.
    server_name : str
        The name that the server's certificate must have. Default: the target's host.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def check(self, renewal_s: float = 0.0) -> None:
        """OSError for a file that cannot be read, ValueError for one that is not what it is given
        as: gRPC would tell neither, and no connection would ever stand. A certificate and a key
        that do not match may be in the middle of a renewal, and are given `renewal_s` to.
        """
        end = time.monotonic() + renewal_s
        while True:
            try:
                return self._look()
            except ValueError as error:
                if "KEY_VALUES_MISMATCH" not in str(error) or time.monotonic() >= end:
                    raise
            time.sleep(0.005)

    def _look(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: give both, or neither")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is not None:
            _checked("ca", self.ca, lambda: context.load_verify_locations(cafile=self.ca))
        if self.cert is not None and self.key is not None:
            _read(self.key)  # for its own error
            _checked(
                "cert and key",
                self.cert,
                # "": an encrypted key is refused instead of asked for.
                lambda: context.load_cert_chain(self.cert, self.key, password=""),
            )

    def credentials(self) -> grpc.ChannelCredentials:
        """Of the files as they are now, and of one moment: both of a pair, or neither."""
        while True:
            before = self.stamps()
            texts = [_read(path) for path in (self.ca, self.key, self.cert)]
            if self.stamps() == before:
                return grpc.ssl_channel_credentials(*texts)

    def stamps(self) -> tuple[object, ...]:
        """What differs once a file was replaced."""
        return tuple(_stamp(path) for path in (self.ca, self.key, self.cert) if path is not None)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def _stamp(path: Path) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


def _checked(what: str, path: Path, load: object) -> None:
    _read(path)  # for its own error
    try:
        load()  # type: ignore[operator]
    except ssl.SSLError as error:
        why = error.reason or "no PEM"
        raise ValueError(f"{what}={os.fspath(path)} cannot be used: {why}") from None


def explain(tls: Tls | None, target: str, text: str) -> str:
    """What gRPC's words for a connection that did not stand mean and what to do about it; "" when
    they say nothing of TLS.
    """
    if not text.startswith("failed to connect to all addresses"):
        return ""
    cut = "Socket closed" in text or "reset by peer" in text
    if tls is None:
        at_once = "the server closed the connection at the first word: its listener may have TLS"
        return f"{at_once}; give tls" if cut else ""
    if "WRONG_VERSION_NUMBER" in text:
        return "what listens there speaks no TLS; leave tls out, or use the listener that has it"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        ca = "this system's authorities" if tls.ca is None else f"ca={os.fspath(tls.ca)}"
        return f"the server's certificate is not vouched for by {ca}, or its time is over"
    # By the version of grpcio.
    if "is not in peer certificate" in text or "Hostname Verification Check failed" in text:
        name = tls.server_name or target
        return (
            f"the server's certificate does not have the name '{name}'; connect by a name that it "
            "has, or say it by server_name"
        )
    if not cut:
        return ""
    if tls.cert is None:
        return "the server asks for a client certificate (cert and key)"
    return (
        f"the server does not take cert={os.fspath(tls.cert)}: its time is over, or another "
        "authority signed it"
    )
