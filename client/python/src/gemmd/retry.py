"""When a failed call may be sent again, and how long to wait before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from gemmd.errors import Aborted, DataLoss, Error, Unavailable


@dataclass(frozen=True)
class Retry:
    """Only calls that cannot do harm twice are retried: reads, KeepAlive, and Execute and RunPlan,
    which carry an op_id.

    Attributes
    ----------
    attempts : int
        Tries in all; 1 retries nothing.
    first_delay_s, longest_delay_s : float
        The wait doubles from the first to the longest; each is shortened by a random part, up to
        half.
    """

    attempts: int = 4
    first_delay_s: float = 0.02
    longest_delay_s: float = 0.5

    def delays(self) -> Iterator[float]:
        """One wait before each further attempt."""
        delay = self.first_delay_s
        for _ in range(self.attempts - 1):
            yield delay * random.uniform(0.5, 1.0)
            delay = min(delay * 2, self.longest_delay_s)


def broken_connection(error: Error) -> bool:
    """True if the way to the server broke. A server that drains says so with a reason: it will not
    come back.
    """
    return isinstance(error, Unavailable) and not error.reason


def resumable(error: Error, resuming: bool) -> bool:
    """True if a stream of chunks may go on from its last good byte.

    ABORTED says that another upload is under way: while resuming that is our own cut stream, not
    yet noticed.
    """
    return (
        broken_connection(error)
        or isinstance(error, DataLoss)
        or (resuming and isinstance(error, Aborted))
    )
