"""Which server is meant where none is named, and how far a call to a target travels: what may be
said to it in plaintext depends on that.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path

DEFAULT_TCP_TARGET = "127.0.0.1:8470"
NOBODY_THERE = "start gemmd there, or say where it is: by the argument target, or in GEMMD_SERVER"


def default_target() -> str:
    """The environment's GEMMD_SERVER; without it the Unix socket of a daemon that was started
    without an address, where there is one; else 127.0.0.1:8470. gemmctl and the C++ client choose
    alike.
    """
    if named := os.environ.get("GEMMD_SERVER"):
        return named
    found = next((path for path in default_sockets() if path.is_socket()), None)
    return DEFAULT_TCP_TARGET if found is None else f"unix:{found}"


def default_sockets() -> list[Path]:
    """Where such a daemon has its socket, best first."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folders = [Path(runtime) / "gemmd"] if runtime.startswith("/") else []
    folders.append(Path("/run/gemmd"))
    own = Path(f"/tmp/gemmd-{os.geteuid()}")
    if _is_ours(own):
        folders.append(own)
    return [folder / "gemmd.sock" for folder in folders]


def _is_ours(folder: Path) -> bool:
    """/tmp is everybody's: another user could have made the folder, and a server in it."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o077


_MOST_PATH_BYTES = 107  # Linux's sockaddr_un, less a NUL
_SCHEMES = ("unix", "unix-abstract", "dns", "ipv4", "ipv6", "vsock", "xds")  # gRPC's


def check(target: str, secure: bool) -> None:
    """Raises ValueError for what gRPC would take for the name of a host and look for in vain, or
    whose port it would take for another. `secure` says that it goes by TLS, whose port is 443 where
    none is given.
    """
    wanted = "write HOST:PORT, unix:/PATH or unix-abstract:NAME"
    if not isinstance(target, str):
        raise TypeError(f"target has type {type(target).__name__}; {wanted}")
    scheme, colon, rest = target.partition(":")
    if scheme in _SCHEMES and colon:
        if not rest:
            raise ValueError(f"the target {target!r} says nothing behind {scheme}:; {wanted}")
        path = rest.removeprefix("//") if scheme == "unix" else ""
        if len(os.fsencode(path)) > _MOST_PATH_BYTES:
            raise ValueError(
                f"the target {target!r} has a path of {len(os.fsencode(path))} bytes; that of a"
                f" socket has {_MOST_PATH_BYTES} at most"
            )
        return
    if target.startswith(("/", "./")):
        raise ValueError(f"the target {target!r} is a path; write unix:{target}")
    if rest.startswith("//"):
        raise ValueError(f"the target {target!r} is an URL; {wanted}")
    host, port = host_and_port(target)
    if secure and host and not port:
        return
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(
            f"the target {target!r} has no port of 1 to 65535; {wanted}, as"
            f" {DEFAULT_TCP_TARGET} or [::1]:8470"
        )


def is_unix_socket(target: str) -> bool:
    return target.startswith(("unix:", "unix-abstract:"))


def host_and_port(address: str) -> tuple[str, str]:
    """Of "[::1]:8470", "127.0.0.1:8470", "localhost": what stands before the port, and the port."""
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, rest.removeprefix(":")
    if address.count(":") > 1:  # an IPv6 address without a port
        return address, ""
    host, _, port = address.partition(":")
    return host, port


def _is_loopback(address: str) -> bool:
    host, _ = host_and_port(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name; only this one is nobody else's
        return host == "localhost"


def stays_on_host(target: str) -> bool:
    """True for Unix sockets and loopback. What is not understood does not stay."""
    if is_unix_socket(target):
        return True
    for scheme in ("ipv4:", "ipv6:"):
        if target.startswith(scheme):  # these may list several: the farthest counts
            return all(_is_loopback(one) for one in target.removeprefix(scheme).split(","))
    # A server that is asked for the name could stand before the third slash.
    if target.startswith("dns:"):
        target = target.removeprefix("dns:///").removeprefix("dns:")
    return _is_loopback(target)


def name_of(target: str) -> tuple[str, str] | None:
    """Host and port of a target that is a name of the network with a port; None otherwise."""
    if stays_on_host(target):
        return None
    host, port = host_and_port(target.removeprefix("dns:///").removeprefix("dns:"))
    try:
        ipaddress.ip_address(host)
    except ValueError:
        is_name = port.isdigit() and not set(host) & set("/,:")
        return (host, port) if is_name else None
    return None
