"""A graph's pieces as CUDA graphs, for one number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from gemmd import errors
from gemmd._layers.graph.turn import Turn

Run = Callable[..., Any]


class Captured:
    """A graph's pieces as they were captured with one number of rows.

    Attributes
    ----------
    seats : list of Seat
        Of the layers' calls in it.
    pieces : dict of int to _Recorded
    nbytes : int
        Of what lies in it from call to call.
    used : int
        Which call of the graph's was its last.
    """

    def __init__(self, at: list[int]) -> None:
        self._at = at  # where what stays in its place lay
        self.seats = list[Any]()
        self.pieces = dict[int, _Recorded]()
        self.nbytes = 0
        self.used = 0
        self._regions = list[Any]()
        self._escaping = list[int]()

    def finish(self, results: Any) -> None:
        """After the call that was captured, whose results these are."""
        sessions = {id(one.armed.session): one.armed.session for one in self.seats}
        self._regions = [one.arming.region() for one in sessions.values()]
        held = {
            one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
            for piece in self.pieces.values()
            for one in piece.held()
        }
        self.nbytes = sum(held.values())
        self._escaping = [
            at
            for at, one in enumerate(_several(results))
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() in held
        ]

    def given_out(self, results: Any) -> Any:
        """A call's, of which none lies where the next one writes."""
        if not self._escaping:
            return results
        copied = list(_several(results))
        for at in self._escaping:
            copied[at] = copied[at].clone()
        return tuple(copied) if isinstance(results, (tuple, list)) else copied[0]

    def is_as_it_was(self, at: list[int]) -> bool:
        """Whether parameters lie where they lay, and the layers still have what was captured."""
        return at == self._at and all(one.alive for one in self.seats)

    def check(self) -> None:
        """Raises what the last replay's calls have met, and that the server or a session is gone."""
        for region in self._regions:
            region.check()
        for seat in self.seats:
            try:
                seat.armed.slot.check()
            except errors.Error as error:
                raise seat.armed.session.arming.whole(error, seat.armed.slot_index) from None


def _several(results: Any) -> Sequence[Any]:
    return results if isinstance(results, (tuple, list)) else (results,)


class _Recorded:
    """A piece in a CUDA graph.

    Parameters
    ----------
    run : function
    given : sequence
        What the piece is given in the call that is captured.
    stays : list of bool
        Of each, whether it lies there in every call.
    captured : Captured
    turn : Turn
    """

    def __init__(
        self, run: Run, given: Sequence[Any], stays: list[bool], captured: Captured, turn: Turn
    ) -> None:
        here = turn.device
        for one in given:
            if isinstance(one, torch.Tensor):
                if one.get_device() != here:
                    raise ValueError("not all tensors are on the current GPU")
            elif type(one) is not int:
                raise TypeError(f"a piece is given a {type(one).__name__}")
        earlier = {id(one) for piece in captured.pieces.values() for one in piece.results}
        own = list(given)
        self._into = list[tuple[int, Any]]()
        for at, one in enumerate(given):
            if isinstance(one, torch.Tensor) and not stays[at]:
                if id(one) not in earlier:
                    own[at] = one.clone()
                self._into.append((at, own[at]))
        self._given = own
        made = turn.recorded(lambda: run(*own))
        self._replay: Callable[[], None] = made[0]
        self.results: Sequence[Any] = made[1]
        self._replay()

    def held(self) -> list[Any]:
        """Tensors that every call has in the same place."""
        own = [self._given[at] for at, _ in self._into]
        return [one for one in (*own, *self.results) if isinstance(one, torch.Tensor)]

    def replay(self, given: Sequence[Any]) -> Any:
        for at, held in self._into:
            one = given[at]
            if one is not held:
                held.copy_(one)
        self._replay()
        return self.results


class Replay:
    """What stands for a piece in its graph: called while a graph is captured, or replayed."""

    def __init__(self, at: int, module: GraphModule, stays: list[bool], turn: Turn) -> None:
        self.__name__ = f"piece_{at}"  # as torch's graphs want a function to have
        self._at, self._run, self._stays, self._turn = at, module.forward, stays, turn

    def __call__(self, *given: Any) -> Any:
        captured = self._turn.now
        assert captured is not None
        held = captured.pieces.get(self._at)
        if held is not None:
            return held.replay(given)
        held = _Recorded(self._run, given, self._stays, captured, self._turn)
        captured.pieces[self._at] = held
        return held.results
