"""Functions that torch's compiler knows apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# How many kinds of calls torch compiles of a function, unless it was told more. Its own 8 are few for
# what serves prompts and decodes, alone and several at once; what comes after them it runs as it is.
_MOST_KINDS = 64


def frame_of(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function that does the same, to compile.

    What torch has compiled lies with a function's code, and counts there. One function decorates the
    forwards of all models of transformers: some models in one process, or one made again and again,
    would soon be run as they are. This one's code is its own, and goes with it.
    """

    def frame(*given: Any, **named: Any) -> Any:
        return call(*given, **named)

    frame.__code__ = frame.__code__.replace()  # another object, though it is the same
    return frame


def allow_kinds() -> None:
    """Of calls of one function."""
    config = torch._dynamo.config
    if hasattr(config, "recompile_limit"):  # torch 2.5 has another word for it
        config.recompile_limit = max(config.recompile_limit, _MOST_KINDS)
