"""Linear, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, words
from gemmd._connection.here_only import Awaited, Unpickled
from gemmd._layers import linear_step
from gemmd._layers.kept import Kept, KeptPlan, Place
from gemmd._layers.linear_step import MemoryKind, Step, Way, Weights, kind_of
from gemmd._memory import interop
from gemmd._ops.multiply import INLINE_BYTES, scratch_size
from gemmd.aio.buffer import Buffer
from gemmd.aio.plan import Plan
from gemmd.aio.resident import obtain, why_not_on_gpu
from gemmd.ops import ACTIVATIONS, Activation
from gemmd.resident import Quantize, Source
from gemmd.result import Array, Result

if TYPE_CHECKING:
    from gemmd.aio.session import Session


class Linear(Unpickled, Awaited):
    """As `gemmd.Linear`, made by `await gemmd.aio.Linear.create(session, weight, ..)` and called by
    `await layer(x)`. Calls under way at the same time run side by side.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("a weight is sent, which is awaited: `await gemmd.aio.Linear.create(..)`")

    _elsewhere = "give it a name, and create it by that name in each process, without the weight"

    def _set(
        self,
        session: Session,
        buffer: Buffer,
        name: str,
        activation: Activation,
        out_dtype: np.dtype[Any] | None,
    ) -> Linear:
        self.session = session
        self.buffer = buffer
        self.name = name
        self.weights = Weights.of(buffer)
        self._activation = activation
        self._out_dtype = out_dtype
        self._planning = asyncio.Lock()
        self._plans: Kept[KeptPlan[Plan]] = Kept()
        self._idle: list[Place[Buffer]] = []
        self._gpu_ways: dict[int, str] = {}
        return self

    def __repr__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        shape = f"{self.weights.k} -> {self.weights.n}"
        return f"Linear{named}({shape}, {self.weights.dtype.name}, asyncio)"

    @classmethod
    async def create(
        cls,
        session: Session,
        weight: Source | Callable[[], Source] | None = None,
        *,
        bias: Source | None = None,
        scales: Source | None = None,
        name: str = "",
        quantize: Quantize | None = "fp8-block",
        activation: Activation = "none",
        out_dtype: dtypes.DTypeLike | None = None,
    ) -> Linear:
        """Parameters and errors as `gemmd.Linear`'s."""
        words.check("activation", activation, ACTIVATIONS)
        out = None if out_dtype is None else dtypes.as_dtype(out_dtype)
        buffer = await obtain(session, weight, bias, scales, name, quantize)
        return cls.__new__(cls)._set(session, buffer, name, activation, out)

    @property
    def in_features(self) -> int:
        """Columns of x."""
        return self.weights.k

    @property
    def out_features(self) -> int:
        """Columns of the result."""
        return self.weights.n

    @overload
    async def __call__(self, x: npt.NDArray[Any]) -> Array: ...
    @overload
    async def __call__(self, x: Any) -> Any: ...
    async def __call__(self, x: Any) -> Any:
        """`forward`."""
        return await self.forward(x)

    async def forward(self, x: Any) -> Any:
        """As `gemmd.Linear.forward`. The stream that is current when this is called is waited for,
        on a thread.
        """
        if interop.torch_of(x) is None:
            return await self._on_host(interop.as_numpy(x))
        m = linear_step.rows_of(tuple(x.shape), self.weights.k)
        if x.is_cuda and not await self.why_not_on_gpu(x.device.index):
            return await self._on_gpu(x.detach(), m)
        return interop.as_torch(await self._on_host(interop.as_numpy(x))).to(x.device)

    async def why_not_on_gpu(self, device: int) -> str:
        """As `gemmd.Linear.why_not_on_gpu`."""
        if device not in self._gpu_ways:
            self._gpu_ways[device] = await why_not_on_gpu(self.session, device, self.buffer.device)
        return self._gpu_ways[device]

    def _step(self, m: int, dtype: np.dtype[Any], way: Way) -> Step:
        return Step(self.weights, m, dtype, self._out_dtype or dtype, self._activation, way)

    async def _on_host(self, x: npt.NDArray[Any]) -> Array:
        m = linear_step.rows_of(x.shape, self.weights.k)
        flat = np.ascontiguousarray(x, self.weights.dtype_for(linear_step.activations(x)))
        flat = flat.reshape(m, self.weights.k)
        step = self._step(m, flat.dtype, "inline")
        if not await self.session.why_not_shared():
            step = self._step(m, flat.dtype, "host_shared")
        elif step.x_bytes + step.d_bytes > INLINE_BYTES:
            step = self._step(m, flat.dtype, "moved")
        async with self._place(step) as place:
            out, result = await self._through(step, place, flat)
        return Array.of(out.reshape(*x.shape[:-1], self.weights.n), result.report)

    async def _through(
        self, step: Step, place: Place[Buffer], x: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], Result]:
        raw = x.reshape(-1).view(np.uint8)
        if step.way == "inline":
            result = await self._run(step, place, [x])
            return result[0], result
        if step.way == "host_shared":
            if place.bytes is None:
                place.bytes = await place.io.array()
            np.copyto(place.bytes[: step.x_bytes], raw)
            result = await self._run(step, place, None)
            got = place.bytes[step.d_at : step.d_at + step.d_bytes].copy()
        else:
            await place.io.upload(raw)
            result = await self._run(step, place, None)
            got = np.asarray(await place.io.download(step.d_at, step.d_bytes))
        return got.view(step.out_dtype).reshape(step.m, self.weights.n), result

    async def _on_gpu(self, x: Any, m: int) -> Any:
        torch = interop.torch_module()
        dtype = self.weights.dtype_for(linear_step.activations(x))
        step = self._step(m, dtype, "device_shared")
        stream = torch.cuda.current_stream(x.device)  # another task may choose another meanwhile
        async with self._place(step) as place:
            if place.bytes is None:
                place.bytes = await place.io.torch()
            with torch.cuda.stream(stream):
                room = place.bytes[: step.x_bytes].view(interop.torch_dtype(dtype))
                room.copy_(x.reshape(-1))
                written = torch.cuda.Event()
                written.record(stream)
            await asyncio.to_thread(written.synchronize)
            await self._run(step, place, None)
            with torch.cuda.stream(stream):
                got = place.bytes[step.d_at : step.d_at + step.d_bytes]
                out = got.view(interop.torch_dtype(step.out_dtype)).clone()
                place.taken = torch.cuda.Event()
                place.taken.record(stream)
        return out.reshape(*x.shape[:-1], self.weights.n)

    async def _run(
        self, step: Step, place: Place[Buffer], inputs: list[npt.NDArray[Any]] | None
    ) -> Result:
        kept = self._plans.take(step)
        if kept is None:
            async with self._planning:  # two tasks must not make it twice
                kept = self._plans.take(step) or await self._keep(step, place)
        try:
            return await kept.plan.run(kept.rebound_to(place.io, place.scratch), inputs)
        finally:
            self._plans.give(step)

    async def _keep(self, step: Step, place: Place[Buffer]) -> KeptPlan[Plan]:
        program = step.program(self.buffer, place.io, place.scratch)
        kept = KeptPlan(await self.session.plan(program), place.io, place.scratch)
        old = self._plans.add(step, kept)
        if old is not None:
            await old.plan.delete()
        return kept

    @asynccontextmanager
    async def _place(self, step: Step) -> AsyncIterator[Place[Buffer]]:
        """Memory for one call, kept for later ones."""
        kind = kind_of(step.way)
        of_kind = [one for one in self._idle if one.kind == kind]
        place = next((one for one in of_kind if one.fits(step)), None)
        if place is not None:
            self._idle.remove(place)
        else:
            if of_kind:
                self._idle.remove(of_kind[0])
                await self._drop(of_kind[0])
            place = await self._new_place(step, kind)
        try:
            if place.taken is not None:
                await asyncio.to_thread(place.taken.synchronize)
            yield place
        finally:
            self._idle.append(place)

    async def _new_place(self, step: Step, kind: MemoryKind) -> Place[Buffer]:
        device = self.buffer.device
        io = await self.session.create_buffer(
            scratch_size(step.io_bytes), memory_kind=kind, device=device, label="activations"
        )
        scratch = await self.session.create_buffer(
            scratch_size(step.scratch_bytes), device=device, label="activations"
        )
        return Place(io, scratch)

    async def _drop(self, place: Place[Buffer]) -> None:
        if place.taken is not None:
            await asyncio.to_thread(place.taken.synchronize)
        place.bytes = None
        await self.session.delete_buffers([place.io, place.scratch])

    async def unpublish(self) -> None:
        """Takes the name away: the weight goes when the last worker has let go of it."""
        await self.session.unpublish(self.name)

    async def close(self) -> None:
        """As `gemmd.Linear.close`."""
        plans, places = self._plans.clear(), list(self._idle)
        self._idle.clear()
        for kept in plans:
            await kept.plan.delete()
        for place in places:
            await self._drop(place)
        await self.buffer.delete()

    async def __aenter__(self) -> Linear:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
