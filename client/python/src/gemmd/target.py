"""How far a call to a target travels: what may be said to it in plaintext depends on that."""

from __future__ import annotations

import ipaddress


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
