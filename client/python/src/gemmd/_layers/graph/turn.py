"""Whose turn it is to lie in the memory of a model's CUDA graphs, and how these are captured."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from gemmd._layers.graph.captured import Captured


class Turn:
    """Whose call lies in the graphs' memory: one at a time of a model's, and of one stream, since two
    graphs that have captured a layer may not run at the same time.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now: Captured | None = None
        self._stream: tuple[int, int] | None = None
        self._side: Any = None
        self._pool: Any = None
        self._keeper: Any = None  # a pool that no graph has is gone, and none can be made in it

    @property
    def device(self) -> int:
        """The GPU's ordinal; -1 before the first capture."""
        return -1 if self._stream is None else self._stream[0]

    def is_of(self, stream: tuple[int, int]) -> bool:
        """Whether that one is it. The first that captures is."""
        return self._stream in (None, stream)

    def begin(self, stream: tuple[int, int]) -> None:
        """The turn of what is captured on that stream."""
        self._stream = stream

    def recorded(self, run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """A graph of what `run` launches, and its results, which have no values yet."""
        if self._keeper is None:
            self._side, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
            self._keeper = self._graph_of(_next_to_nothing, self._pool)
        graph, results = self._graph_of(run, self._pool)
        return graph.replay, results

    def _graph_of(self, run: Callable[[], Any], pool: Any) -> tuple[Any, Any]:
        graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._side.wait_stream(here)
        with torch.cuda.stream(self._side):
            # Threads that do something else may allocate meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                results = run()
            except BaseException:
                self._end_without_graph(graph, pool)
                raise
            graph.capture_end()
        here.wait_stream(self._side)
        return graph, results

    def _end_without_graph(self, graph: Any, pool: Any) -> None:
        """torch's random numbers and its memory stay as in a capture if the end of one fails."""
        try:
            with warnings.catch_warnings(action="ignore"):  # that it is empty
                graph.capture_end()
        except RuntimeError:
            native = torch._C
            with suppress(AttributeError, RuntimeError):  # what torch does behind an end
                native._cuda_endAllocateToPool(self.device, pool)
                native._cuda_releasePool(self.device, pool)
            after = torch.cuda.CUDAGraph()
            after.capture_begin(capture_error_mode="thread_local")
            _next_to_nothing()
            after.capture_end()


def _next_to_nothing() -> Any:
    return torch.zeros(1, device="cuda")


def stream_now() -> tuple[int, int] | None:
    """A GPU and the stream there; None while it is captured by others."""
    native = torch._C
    if native._cuda_isCurrentStreamCapturing():
        return None
    device = native._cuda_getDevice()
    return device, native._cuda_getCurrentRawStream(device)
