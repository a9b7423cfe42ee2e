"""Linear: a layer whose weight stays on the server, shared by as many workers as call it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, interop, layers
from gemmd.buffer import Buffer
from gemmd.kept import Kept, KeptPlan, Place
from gemmd.layers import Activation, MemoryKind, Step, Way, kind_of
from gemmd.multiply import INLINE_BYTES, scratch_size
from gemmd.plan import Plan
from gemmd.resident import Quantize, Source, obtain, why_not_on_gpu
from gemmd.result import Array, Result

if TYPE_CHECKING:
    from gemmd.session import Session


class Linear:
    """y = activation(x @ weight.T + bias), the weight resident.

    With `quantize` (the default) the weight is turned into FP8 with scales of 128x128 once, on the
    server, and activations into FP8 with scales of 1x128 in the program of each call. A plan is
    kept for each batch size.

    With a `name` the weight is published: the first worker of the tenant to come makes it, all
    others find it, and there is one copy in device memory however many processes call. It outlives
    them until `unpublish`.

    Thread-safe: calls of several threads run side by side, each in memory of its own.

    Parameters
    ----------
    session : Session
    weight : array or torch tensor [n, k], or a function that returns one
        float32, bfloat16 or float16; or float8_e4m3fn with `scales`. A function is called only if
        `name` is not published yet. May be left out if it is.
    bias : array or torch tensor [n], optional
        Kept in float32.
    scales : array or torch tensor [ceil(n/128), ceil(k/128)], optional
        Of a weight that is float8_e4m3fn already; value = stored * scale.
    name : str
        1 to 128 of [A-Za-z0-9._/-].
    quantize : {"fp8-block", None}
        None keeps the weight's own dtype.
    activation : {"none", "relu"}
    out_dtype : DTypeLike, optional
        Of what `forward` returns: float32, bfloat16 or float16. Default: x's.

    Raises
    ------
    NotFound
        No weight is given and `name` is not published.
    FailedPrecondition
        `name` is something else's.
    """

    def __init__(
        self,
        session: Session,
        weight: Source | Callable[[], Source] | None = None,
        *,
        bias: Source | None = None,
        scales: Source | None = None,
        name: str = "",
        quantize: Quantize | None = "fp8-block",
        activation: Activation = "none",
        out_dtype: dtypes.DTypeLike | None = None,
    ) -> None:
        self.session = session
        self.name = name
        self._activation = activation
        self._out_dtype = None if out_dtype is None else dtypes.as_dtype(out_dtype)
        self._lock = threading.Lock()
        self._plans: Kept[KeptPlan[Plan]] = Kept()
        self._idle: list[Place[Buffer]] = []
        self._gpu_ways: dict[int, str] = {}
        self.buffer = obtain(session, weight, bias, scales, name, quantize)
        self.weights = layers.Weights.of(self.buffer)

    @property
    def in_features(self) -> int:
        return self.weights.k

    @property
    def out_features(self) -> int:
        return self.weights.n

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def forward(self, x: Any) -> Any:
        """x [.., k] to [.., n].

        A numpy array gives a `gemmd.Array`, with the `.report` of the call. A torch tensor gives a
        torch tensor on its device; one on the server's own GPU does not leave it: the current
        stream is synchronised, and the result may be used on it at once.

        Raises
        ------
        ValueError
            The last extent is not k.
        TypeError
            An element type gemmd has none of.
        """
        if interop.torch_of(x) is None:
            return self._on_host(interop.as_numpy(x))
        m = layers.rows_of(tuple(x.shape), self.weights.k)
        if x.is_cuda and not self.why_not_on_gpu(x.device.index):
            return self._on_gpu(x.detach(), m)
        return interop.as_torch(self._on_host(interop.as_numpy(x))).to(x.device)

    def why_not_on_gpu(self, device: int) -> str:
        """Why tensors of this process's GPU `device` go through the host; "" if they need not."""
        if device not in self._gpu_ways:
            self._gpu_ways[device] = why_not_on_gpu(self.session, device, self.buffer.device)
        return self._gpu_ways[device]

    def _step(self, m: int, dtype: np.dtype[Any], way: Way) -> Step:
        return Step(self.weights, m, dtype, self._out_dtype or dtype, self._activation, way)

    def _on_host(self, x: npt.NDArray[Any]) -> Array:
        m = layers.rows_of(x.shape, self.weights.k)
        flat = np.ascontiguousarray(x, self.weights.dtype_for(layers.activations(x)))
        flat = flat.reshape(m, self.weights.k)
        step = self._step(m, flat.dtype, "inline")
        if not self.session.why_not_shared():
            step = self._step(m, flat.dtype, "host_shared")
        elif step.x_bytes + step.d_bytes > INLINE_BYTES:
            step = self._step(m, flat.dtype, "moved")
        with self._place(step) as place:
            out, result = self._through(step, place, flat)
        return Array.of(out.reshape(*x.shape[:-1], self.weights.n), result.report)

    def _through(
        self, step: Step, place: Place[Buffer], x: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], Result]:
        raw = x.reshape(-1).view(np.uint8)
        if step.way == "inline":
            result = self._run(step, place, [x])
            return result[0], result
        if step.way == "host_shared":
            if place.bytes is None:
                place.bytes = place.io.array()
            np.copyto(place.bytes[: step.x_bytes], raw)
            result = self._run(step, place, None)
            got = place.bytes[step.d_at : step.d_at + step.d_bytes].copy()
        else:
            place.io.upload(raw)
            result = self._run(step, place, None)
            got = np.asarray(place.io.download(step.d_at, step.d_bytes))
        return got.view(step.out_dtype).reshape(step.m, self.weights.n), result

    def _on_gpu(self, x: Any, m: int) -> Any:
        torch = interop.torch_module()
        dtype = self.weights.dtype_for(layers.activations(x))
        step = self._step(m, dtype, "device_shared")
        with torch.cuda.device(x.device), self._place(step) as place:
            if place.bytes is None:
                place.bytes = place.io.torch()
            room = place.bytes[: step.x_bytes].view(interop.torch_dtype(dtype))
            room.copy_(x.reshape(-1))
            interop.settle(x)
            self._run(step, place, None)
            got = place.bytes[step.d_at : step.d_at + step.d_bytes]
            out = got.view(interop.torch_dtype(step.out_dtype)).clone()
            place.taken = torch.cuda.Event()
            place.taken.record()
        return out.reshape(*x.shape[:-1], self.weights.n)

    def _run(
        self, step: Step, place: Place[Buffer], inputs: list[npt.NDArray[Any]] | None
    ) -> Result:
        with self._lock:
            kept = self._plans.take(step)
            if kept is None:  # rare, and two threads must not make it twice: under the lock
                ops_ = step.program(self.buffer, place.io, place.scratch)
                kept = KeptPlan(self.session.plan(ops_), place.io, place.scratch)
                old = self._plans.add(step, kept)
                if old is not None:
                    old.plan.delete()
        try:
            return kept.plan.run(kept.rebound_to(place.io, place.scratch), inputs)
        finally:
            with self._lock:
                self._plans.give(step)

    @contextmanager
    def _place(self, step: Step) -> Iterator[Place[Buffer]]:
        """Memory for one call, kept for later ones: a call in steady state creates nothing."""
        kind = kind_of(step.way)
        with self._lock:
            place = next((one for one in self._idle if one.kind == kind and one.fits(step)), None)
            small = None
            if place is None:
                small = next((one for one in self._idle if one.kind == kind), None)
            for one in (place, small):
                if one is not None:
                    self._idle.remove(one)
        if place is None:
            if small is not None:
                self._drop(small)
            place = self._new_place(step, kind)
        if place.taken is not None:
            place.taken.synchronize()  # a result of another stream may still be on its way out
        try:
            yield place
        finally:
            with self._lock:
                self._idle.append(place)

    def _new_place(self, step: Step, kind: MemoryKind) -> Place[Buffer]:
        device = self.buffer.device
        io = self.session.create_buffer(
            scratch_size(step.io_bytes), memory_kind=kind, device=device, label="activations"
        )
        scratch = self.session.create_buffer(
            scratch_size(step.scratch_bytes), device=device, label="activations"
        )
        return Place(io, scratch)

    def _drop(self, place: Place[Buffer]) -> None:
        if place.taken is not None:
            place.taken.synchronize()
        place.bytes = None
        self.session.delete_buffers([place.io, place.scratch])

    # Lifetime.

    def unpublish(self) -> None:
        """Takes the name away: the weight goes when the last worker has let go of it."""
        self.session.unpublish(self.name)

    def close(self) -> None:
        """Lets go of the weight, the plans and the memory. No call may be under way. The session's
        end does the same.
        """
        with self._lock:
            plans, places = self._plans.clear(), list(self._idle)
            self._idle.clear()
        for kept in plans:
            kept.plan.delete()
        for place in places:
            self._drop(place)
        self.buffer.delete()

    def __enter__(self) -> Linear:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        return f"Linear{named}({self.weights.k} -> {self.weights.n}, {self.weights.dtype.name})"
