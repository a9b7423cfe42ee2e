"""What a fork inherits must not be used: two processes on one connection get each other's answers,
and write into each other's part of shared memory. gRPC does not notice.
"""

from __future__ import annotations

import os

from gemmd import errors

_forks = 0  # between the process that imported this and this one


def _in_child() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_in_child)


class Home:
    """The process in which this was made."""

    __slots__ = ("_forks",)

    def __init__(self) -> None:
        self._forks = _forks

    @property
    def left(self) -> bool:
        """Whether this process was forked from it."""
        return self._forks != _forks

    def check(self) -> None:
        """Raises FailedPrecondition unless this process is it."""
        if self._forks != _forks:
            raise errors.FailedPrecondition(
                "this process was forked from the one that connected, whose connection it must not"
                " use: call gemmd.connect() and open a session in each worker, and start workers"
                " before the first connection or by multiprocessing's 'spawn'",
                reason="FORKED",
            )
