"""What a fork inherits must not be used: two processes on one connection get each other's answers,
and write into each other's part of shared memory. gRPC does not notice.

Nor may the child of a process that has been connected connect anew: gRPC's threads are not forked,
its sockets and locks are, and both processes hang or crash. To close all clients first is not
enough: gRPC ends its threads some time after the last channel.
"""

from __future__ import annotations

import os

from gemmd import errors

_forks = 0  # between the process that imported this and this one
_connected = False  # whether this process has made a connection
_inherited = False  # whether it was forked from one that had


def _in_child() -> None:
    global _forks, _inherited
    _forks += 1
    _inherited = _inherited or _connected


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

    def connects(self) -> None:
        """Said before a connection is made here.

        Raises
        ------
        FailedPrecondition
            `check`'s, or this process was forked from one that has been connected.
        """
        global _connected
        self.check()
        if _inherited:
            raise errors.FailedPrecondition(
                "this process was forked from one that has been connected to a gemmd server, and"
                " gRPC breaks in both if it connects here, too: start workers by multiprocessing's"
                " 'spawn', or before the first call",
                reason="FORKED",
            )
        _connected = True
