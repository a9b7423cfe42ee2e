"""What a fork inherits must not be used: two processes on one connection get each other's answers,
and write into each other's part of shared memory. gRPC does not notice.

Nor may the child connect anew while its parent is connected: gRPC's threads are not forked, its
sockets are, and both processes hang or crash.
"""

from __future__ import annotations

import os
import weakref

from gemmd import errors

_forks = 0  # between the process that imported this and this one
_connected: weakref.WeakSet[Home] = weakref.WeakSet()
_inherited = False  # whether this process was forked from one that was connected


def _in_child() -> None:
    global _forks, _inherited, _connected
    _forks += 1
    _inherited = _inherited or len(_connected) > 0
    _connected = weakref.WeakSet()


os.register_at_fork(after_in_child=_in_child)


class Home:
    """The process in which this was made."""

    __slots__ = ("__weakref__", "_forks")

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
            `check`'s, or this process was forked from one that was connected.
        """
        self.check()
        if _inherited:
            raise errors.FailedPrecondition(
                "this process was forked from one that was connected to a gemmd server, and gRPC"
                " breaks in both if it connects here, too: start workers by multiprocessing's"
                " 'spawn', or before the first connection, or close all clients before",
                reason="FORKED",
            )
        _connected.add(self)

    def disconnects(self) -> None:
        """Said after the last connection that was made here is closed."""
        _connected.discard(self)
