"""Figures as people read them, and as gemmctl prints them."""

from __future__ import annotations


def seconds(value: float) -> str:
    """ "35.0 us", "1.20 ms", "2.000 s"."""
    if value <= 0:
        return "0 s"
    if value < 1e-3:
        return f"{value * 1e6:.1f} us"
    return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.3f} s"


def size(nbytes: float) -> str:
    """ "512 B", "1.50 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.2f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} TiB"
