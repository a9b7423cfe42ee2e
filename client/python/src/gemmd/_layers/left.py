"""What a call has left alone of a model, and why, in words."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 3  # names of one reason


def by_reason(left: Iterable[tuple[str, str]]) -> str:
    """Of names with reasons, each reason once: "a, b, c and 4 more: WHY; d: OTHER"."""
    names = dict[str, list[str]]()
    for name, why in left:
        names.setdefault(why, []).append(name)
    reasons = []
    for why, those in names.items():
        more = f" and {len(those) - _SHOWN} more" if len(those) > _SHOWN else ""
        reasons.append(f"{', '.join(those[:_SHOWN])}{more}: {why}")
    return "; ".join(reasons)
