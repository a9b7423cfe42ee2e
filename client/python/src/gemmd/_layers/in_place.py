"""A model whose own calls go another way, until it is as it was again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemmd._layers import decoding
from gemmd._layers.frames import frame_of
from gemmd._layers.graph.compiling import Compiling
from gemmd._layers.graph.rest import backend_of, without_graphs


def put_in(model: Any, compiling: Compiling, rest: str, mode: str, options: dict[str, Any]) -> None:
    compiling.put_in()
    backend: Any = compiling
    if decoding.decodes(model):
        decoding.put_in(model, compiling)
        # No graphs of the model's own calls: a prompt has another length each time, and makes the
        # cache, which must not lie in a graph's memory.
        backend = compiling.leaving_to(backend_of(rest, without_graphs(mode)))
    for one in _called(model):
        frame = frame_of(one._call_impl)
        one._compiled_call_impl = torch.compile(frame, backend=backend, **options)


def take_out(model: Any, compiling: Compiling) -> None:
    for one in _called(model):
        one._compiled_call_impl = None
    decoding.take_out(model)
    compiling.take_out()


def _called(model: Any) -> Iterator[Any]:
    """It, and what methods of it call by themselves, as `generate` an encoder: models in it. Where the
    model calls them, they are part of its graph.
    """
    yield model
    for one in model.modules():
        if one is not model and hasattr(one, "main_input_name") and hasattr(one, "config"):
            yield one
