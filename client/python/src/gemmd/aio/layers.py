"""Layers, for asyncio: those of `gemmd`. An armed call from the host is rung and looked for by the
loop; all else waits on a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy.typing as npt

import gemmd.linear
import gemmd.mlp
import gemmd.moe
import gemmd.sequential
from gemmd import errors
from gemmd._connection.here_only import Awaited, Unpickled
from gemmd._layers.layer import Layer
from gemmd._layers.pair import Pair
from gemmd._layers.places import HostRun
from gemmd._memory import interop
from gemmd.aio.armed import until_done

if TYPE_CHECKING:
    from gemmd.aio.session import Session

L = TypeVar("L", bound=gemmd.linear.Linear | Pair | gemmd.sequential.Sequential)


class AsyncLayer(Unpickled, Awaited, Generic[L]):
    """Made by `create` and called by `await layer(x)`. Calls under way at the same time run side by
    side. With a CUDA tensor on the server's GPU the stream that is current at the call does the
    work, and the result is its, too.

    Attributes
    ----------
    layer : Linear, MLP or MoE of `gemmd`
        On the same session, over connections of its own.
    """

    _kind: ClassVar[type[Layer]]
    _rings: ClassVar[bool] = True  # for x alone, as it is given

    def __init__(self, *_: Any, **__: Any) -> None:
        name = type(self).__name__
        raise TypeError(f"a weight is sent, which is awaited: `await gemmd.aio.{name}.create(..)`")

    _elsewhere = "give it a name, and create it by that name in each process, without the weight"

    @classmethod
    async def create(cls, session: Session, *args: Any, **options: Any) -> Self:
        """Parameters and errors as those of the layer of that name in `gemmd`."""
        made = cls.__new__(cls)
        made.session = session
        kind: Callable[..., Any] = cls._kind
        made.layer = await asyncio.to_thread(kind, session.on_threads(), *args, **options)
        return made

    session: Session
    layer: L

    def __repr__(self) -> str:
        return f"{repr(self.layer)[:-1]}, asyncio)"

    @property
    def in_features(self) -> int:
        """Columns of x."""
        return self.layer.in_features

    @property
    def out_features(self) -> int:
        """Columns of the result."""
        return self.layer.out_features

    async def __call__(self, x: Any, *routing: Any, **named: Any) -> Any:
        """`forward`."""
        return await self.forward(x, *routing, **named)

    async def forward(self, x: Any, *routing: Any, **named: Any) -> Any:
        """As the layer's of that name in `gemmd`. Cancelled, it leaves the call under way."""
        if self._rings and interop.torch_of(x) is None:
            x = interop.as_numpy(x)
            run = self.layer.begin(x)
            if run is not None:
                # A task of its own: the run's memory is not free before the run is done.
                return await asyncio.shield(asyncio.ensure_future(self._end(run, x)))
        return await self._on_thread(self.layer, x, *routing, **named)

    async def _end(self, run: HostRun, x: npt.NDArray[Any]) -> Any:
        await until_done(run.armed)
        return self.layer.ended(run, x)

    async def _on_thread(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        x = args[0]
        if interop.torch_of(x) is None or not x.is_cuda:
            return await asyncio.to_thread(work, *args, **options)
        torch = interop.torch_module()
        stream = torch.cuda.current_stream(x.device)  # of this thread, until the next await

        def run() -> Any:
            with torch.cuda.stream(stream):
                return work(*args, **options)

        return await asyncio.to_thread(run)

    async def unpublish(self) -> None:
        """Takes its name away: the weights go when the last worker has let go of them."""
        await asyncio.to_thread(self.layer.unpublish)

    async def close(self) -> None:
        """As the layer's of that name in `gemmd`."""
        await asyncio.to_thread(self.layer.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(errors.beside(kind)):
            await self.close()


class Linear(AsyncLayer[gemmd.linear.Linear]):
    """`gemmd.Linear`, awaited."""

    _kind = gemmd.linear.Linear


class MLP(AsyncLayer[gemmd.mlp.MLP]):
    """`gemmd.MLP`, awaited."""

    _kind = gemmd.mlp.MLP


class Sequential(AsyncLayer[gemmd.sequential.Sequential]):
    """`gemmd.Sequential`, awaited."""

    _kind = gemmd.sequential.Sequential

    @classmethod
    async def create(cls, *layers: Linear | MLP | Sequential) -> Self:  # type: ignore[override]
        """Of layers of this module; parameters and errors as those of `gemmd.Sequential`."""
        made = cls.__new__(cls)
        made.layer = cls._kind(*(getattr(one, "layer", one) for one in layers))  # type: ignore[arg-type]
        made.session = layers[0].session
        return made


class MoE(AsyncLayer[gemmd.moe.MoE]):
    """`gemmd.MoE`, awaited."""

    _kind = gemmd.moe.MoE
    _rings = False

    async def from_logits(self, x: Any, logits: Any, **options: Any) -> Any:
        """As `gemmd.MoE.from_logits`."""
        return await self._on_thread(self.layer.from_logits, x, logits, **options)
