"""Pieces of a graph as CUDA graphs: a host launches each by one call.

What runs as torch runs it takes a host some 10 us a kernel, a decoding token some 30 kernels a layer,
and all of them together less than 100 us on an H200. What has another shape with every call, as an
attention over a cache that grows, stays between the pieces.

A number of rows that comes often is captured. What a piece is given is copied to where it was captured,
but for parameters and what an earlier piece gives. Its results lie in memory of the graph's: what the
caller gets of them is copied.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.fx import GraphModule, Node

from gemmd._layers import graphs
from gemmd._layers.graph.calls import layer_of
from gemmd._layers.graph.captured import Captured, Replay, Run
from gemmd._layers.graph.pieces import Cut, Limits, joined, module_of
from gemmd._layers.graph.turn import Turn, stream_now
from gemmd._layers.layer import Layer

Key = tuple[int, ...]

OFTEN = 8  # calls; a capture takes some ms a layer, and saves some 0.3 ms a call
MOST_KEYS = 16  # numbers of rows of one graph
MOST_HELD_BYTES = 256 << 20  # of them together
UNUSED = 1000  # calls since: then it makes room for another
MOST_COUNTED = 1 << 10
DEVICE = "cuda"
MOST_COPIED_BYTES = 1 << 20  # of one input: the kernels of more rows are what a call waits for


def replayed(
    graph_module: GraphModule, inputs: Sequence[Any], buffers: Container[int], turn: Turn
) -> Run:
    """What runs in a graph's place, for parameters as those among the inputs. `buffers`: ids of the
    model's, which stay where they are, as parameters do.
    """
    graph = graph_module.graph
    layers = {node: layer for node in graph.nodes if (layer := layer_of(node)) is not None}
    places = [node for node in graph.nodes if node.op == "placeholder"]
    stay = {
        node: at
        for at, (node, one) in enumerate(zip(places, inputs, strict=True))
        if isinstance(one, torch.nn.Parameter) or id(one) in buffers
    }
    cut = Cut(graph, layers, stay, Limits(DEVICE, MOST_COPIED_BYTES))
    numbers = _numbers(places, cut)
    if not cut.order or numbers is None or not all(map(_is_plain, inputs)):
        run: Run = graph_module.forward
        return run
    return Replays(graph_module, cut, numbers, stay, list(dict.fromkeys(layers.values())), turn)


def _is_plain(one: Any) -> bool:
    """Whether it is no tensor of another kind, whose memory is elsewhere."""
    return not isinstance(one, torch.Tensor) or type(one) in (torch.Tensor, torch.nn.Parameter)


def _numbers(placeholders: list[Node], cut: Cut) -> list[int] | None:
    """Which inputs are the symbols of the pieces' extents; None if one of them is not given."""
    places, found = list[int](), set[Any]()
    for at, node in enumerate(placeholders):
        value = node.meta.get("example_value")
        if isinstance(value, torch.SymInt) and value.node.expr in cut.symbols:
            places.append(at)
            found.add(value.node.expr)
    return places if found == cut.symbols else None


class Replays:
    """A graph whose pieces are captured once a number of rows has come often.

    Parameters
    ----------
    graph_module : torch.fx.GraphModule
    cut : Cut
    numbers : list of int
        Which inputs say of how many rows a call is.
    stay : dict of Node to int
        Inputs that lie where they lay.
    layers : list of Layer
    turn : Turn

    Attributes
    ----------
    why_not : str
        What went wrong with a capture: then it stays as torch makes it.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        cut: Cut,
        numbers: list[int],
        stay: dict[Node, int],
        layers: list[Layer],
        turn: Turn,
    ) -> None:
        self._plain: Run = graph_module.forward
        self._numbers, self._layers, self._turn = numbers, layers, turn
        self._graph_module, self._cut = graph_module, cut
        self._stay = sorted({stay[of] for one in cut.pieces for of in one.inputs if of in stay})
        self._calls = 0
        self._counts = dict[Key, int]()
        self._captured = dict[Key, Captured]()
        self.why_not = ""

    def __call__(self, *inputs: Any) -> Any:
        """As the graph."""
        if not self._may_replay():
            return self._plain(*inputs)
        self._calls += 1
        key = tuple(inputs[at] for at in self._numbers)
        captured = self._captured.get(key)
        if captured is None and not self._is_often(key):
            return self._plain(*inputs)
        turn, stream = self._turn, stream_now()
        if stream is None or not turn.is_of(stream) or not turn.lock.acquire(blocking=False):
            return self._plain(*inputs)
        try:
            if captured is None and not self._has_room():
                return self._plain(*inputs)
            at = [inputs[place].data_ptr() for place in self._stay]
            if captured is not None and captured.is_as_it_was(at):
                return self._replay(key, captured, inputs)
            self._captured.pop(key, None)
            turn.begin(stream)
            return self._capture(key, at, inputs)
        finally:
            turn.now = None
            turn.lock.release()

    def forget(self) -> None:
        """Lets go of all graphs."""
        self._captured.clear()

    @cached_property
    def _by_pieces(self) -> Run:
        """The graph with pieces in it that are captured or replayed: written when one is often called."""
        owner = self._graph_module
        pieces = [
            Replay(at, module_of(owner, one), list(map(self._cut.stays, one.inputs)), self._turn)
            for at, one in enumerate(self._cut.pieces)
        ]
        run: Run = joined(owner, self._cut, pieces).forward
        return run

    def _may_replay(self) -> bool:
        if self.why_not or torch.is_grad_enabled():
            return False
        if any(one.is_in_graphs_of_others for one in self._layers):
            self._captured.clear()  # which may be replayed at any time
            return False
        return True

    def _is_often(self, key: Key) -> bool:
        if len(self._counts) >= MOST_COUNTED:
            self._counts.clear()
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key] > OFTEN

    def _has_room(self) -> bool:
        """For one number of rows more: once others were not used for long, without these."""
        while True:
            held = dict(self._captured)
            held_bytes = sum(one.nbytes for one in held.values())
            if len(held) < MOST_KEYS and held_bytes <= MOST_HELD_BYTES:
                return True
            oldest = min(held, key=lambda key: held[key].used)
            if self._calls - held[oldest].used < UNUSED:
                return False
            self._captured.pop(oldest, None)

    def _capture(self, key: Key, at: list[int], inputs: Sequence[Any]) -> Any:
        """The results of a call of its own: a graph that is captured has made none."""
        captured = self._turn.now = Captured(at)
        try:
            with (
                graphs.own(captured.seats, MOST_COPIED_BYTES),
                torch.inference_mode(False),
                torch.no_grad(),
            ):
                results = self._by_pieces(*inputs)
        except graphs.TooLargeError:
            self._counts[key] = -(1 << 62)
        except Exception as error:  # an op that no graph can have, or no room on the server
            self.why_not = f"{type(error).__name__}: {error}"
            self._captured.clear()
        else:
            captured.finish(results)
            captured.used = self._calls
            self._captured[key] = captured
        self._turn.now = None
        return self._plain(*inputs)

    def _replay(self, key: Key, captured: Captured, inputs: Sequence[Any]) -> Any:
        try:
            captured.check()
        except BaseException:
            self._captured.pop(key, None)
            raise
        captured.used = self._calls
        self._turn.now = captured
        return captured.given_out(self._by_pieces(*inputs))
