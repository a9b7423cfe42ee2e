"""SplitLinear: what `gemmd.Linear(.., split="columns")` and `split="rows"` make."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, errors, ops, words
from gemmd._layers import linear_step
from gemmd._layers.kept import OF_PLANS
from gemmd._layers.layer import Layer, check_result
from gemmd._layers.rows import planned
from gemmd._layers.split_step import Split, SplitPlace, SplitStep, SplitWeights, part_of
from gemmd._ops.multiply import INLINE_BYTES
from gemmd.buffer import Buffer
from gemmd.linear import Linear
from gemmd.ops import Activation, Op
from gemmd.plan import Plan
from gemmd.report import Report
from gemmd.resident import Quantize, Source, all_or_none, find, obtain
from gemmd.result import Array
from gemmd.v1 import device_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.session import Session

MAX_SEATS = 16  # plans with memory of their own: kinds of calls, times threads that call at once


def devices_like(session: Session) -> list[str]:
    """The session's device, and those behind it that serve and are of its architecture."""
    found = list(session.client.devices())
    home = next(one for one in found if one.name == session.device)
    like = [
        one.name
        for one in found
        if one.architecture == home.architecture and one.state == pb.Device.STATE_SERVING
    ]
    return [home.name, *(name for name in like if name != home.name)]


class Seat:
    """A plan and the memory on each device that it runs on, for one call at a time."""

    def __init__(self, plan: Plan, memory: list[Buffer], places: list[SplitPlace]) -> None:
        self.plan = plan
        self.memory = memory
        self.places = places


class SplitLinear(Linear, in_parts=True):
    """y = activation(x @ weight.T + bias), the weight in parts on several devices.

    Attributes
    ----------
    devices : tuple of str
        By part.
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
        split: Split | None = None,
        devices: Sequence[str] | None = None,
    ) -> None:
        words.check("split", split, get_args(Split))
        assert split is not None
        words.check("activation", activation, ops.ACTIVATIONS)
        check_result(out_dtype)
        if split == "rows" and activation != "none":
            raise ValueError(
                f'activation="{activation}" would come before the sums of split="rows"; apply it to'
                " the result"
            )
        wanted = devices_like(session) if devices is None else list(devices)
        if not wanted or len(set(wanted)) != len(wanted):
            raise ValueError(f"devices={wanted}; name different ones, one at least")
        self.name = name
        self._activation = activation
        weights: list[linear_step.Weights] = []
        given = functools.cache(weight if callable(weight) else lambda: weight)
        with all_or_none() as self._parts:
            for part, device in enumerate(wanted):
                self._parts.append(
                    self._obtain(
                        session,
                        None if weight is None else given,
                        bias,
                        scales,
                        quantize,
                        split,
                        part,
                        device,
                        len(wanted),
                    )
                )
                weights.append(linear_step.Weights.of(self._parts[part]))
        self.devices = tuple(buffer.device for buffer in self._parts)
        self._split = SplitWeights(split, tuple(weights))
        self.weights = self._split.parts[0]
        self._seats: OrderedDict[int, tuple[SplitStep, Seat]] = OrderedDict()
        self._numbers = iter(range(1 << 62))
        features = (self._split.k, self._split.n)
        Layer.__init__(self, session, self.devices[0], features, out_dtype)

    def _obtain(
        self,
        session: Session,
        weight: Callable[[], Any] | None,
        bias: Any,
        scales: Any,
        quantize: Quantize | None,
        split: Split,
        part: int,
        device: str,
        parts: int,
    ) -> Buffer:
        name = f"{self.name}.{split}.{part}-{parts}" if self.name else ""
        found = find(session, weight, name)
        if found is not None:
            return found
        assert weight is not None
        whole = linear_step.taken(weight(), bias=bias, scales=scales)
        layout = linear_step.layout_of(whole, bias, scales, quantize)  # errors are of the whole
        scales = None if scales is None else layout.scales_of(scales)
        some, some_bias, some_scales = part_of(whole, bias, scales, split, part, parts)
        return obtain(session, some, some_bias, some_scales, name, quantize, device)

    def why_not_on_gpu(self, device: int) -> str:
        return "the weight is on several devices"

    def why_not_armed(self) -> str:
        return "a program on several devices is not armed"

    def _on_host(self, x: npt.NDArray[Any]) -> Array:
        flat = self._dense(x)
        m = len(flat)
        if not m:
            return self._of_no_row(x, flat.dtype)
        out_dtype = self.result_dtype(flat.dtype)
        rows = planned(m)
        if rows > m:
            flat = np.concatenate([flat, np.zeros((rows - m, flat.shape[1]), flat.dtype)])
        moved = flat.nbytes + rows * self.out_features * out_dtype.itemsize
        step = SplitStep(
            self._split, rows, flat.dtype, out_dtype, self._activation, moved <= INLINE_BYTES
        )
        with self._seat(step) as seat:
            out, report = self._through_parts(step, seat, flat)
        return Array.of(out[:m].reshape(*x.shape[:-1], self.out_features), report)

    def _through_parts(
        self, step: SplitStep, seat: Seat, x: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], Report]:
        count = len(self._parts)
        if step.inline:
            sent = range(count) if self._split.split == "rows" else range(1)
            result = seat.plan.run(inputs=[self._split.x_of(x, part) for part in sent])
            got = [np.asarray(result[part]) for part in range(count)]
        else:
            for part, place in enumerate(seat.places):
                raw = self._split.x_of(x, part).reshape(-1).view(np.uint8)
                seat.memory[part].upload(raw, place.starts["x"])
            result = seat.plan.run()
            got = []
            for memory, place in zip(seat.memory, seat.places, strict=True):
                y = place.y(memory)
                raw = np.asarray(memory.download(y.offset_bytes, y.nbytes))
                got.append(raw.view(step.out_dtype).reshape(y.shape))
        return np.concatenate(got, axis=1), result.report

    @contextmanager
    def _seat(self, step: SplitStep) -> Iterator[Seat]:
        """One that is idle, kept for later calls; those used longest ago are given up."""
        with self._lock:
            found = next((n for n, (one, _) in self._seats.items() if one == step), None)
            seat = None if found is None else self._seats.pop(found)[1]
        if seat is None:
            seat = self._take_seat(step)
        try:
            yield seat
        except BaseException as error:
            if errors.may_still_run(error):
                self._lose(seat.memory)
                with suppress(errors.Error):
                    seat.plan.delete()
            else:
                self._keep(step, seat)
            raise
        self._keep(step, seat)

    def _keep(self, step: SplitStep, seat: Seat) -> None:
        old = None
        with self._lock:
            self._seats[next(self._numbers)] = (step, seat)
            if len(self._seats) > MAX_SEATS:
                old = self._seats.popitem(last=False)[1][1]
        if old is not None:
            self._give_up(old)

    def _take_seat(self, step: SplitStep) -> Seat:
        self.session._delete_lost()
        places = [step.place(part) for part in range(len(self._parts))]
        memory: list[Buffer] = []
        try:
            for place, device in zip(places, self.devices, strict=True):
                size = place.size_bytes
                memory.append(self.session.create_buffer(size, device=device, label="activations"))
                if step.exchanges:
                    positions = step.positions().reshape(-1)
                    memory[-1].upload(positions.view(np.uint8), place.starts["positions"])
                    ones = np.ones(positions.size, np.float32)
                    memory[-1].upload(ones.view(np.uint8), place.starts["ones"])
            plan = self._made_plan(step.program(self._parts, memory))
        except BaseException:
            for buffer in memory:
                buffer.delete()
            raise
        return Seat(plan, memory, places)

    def _made_plan(self, program: list[Op]) -> Plan:
        """In the room of one that is idle, if the server has no other."""
        while True:
            try:
                return self.session.plan(program, "split layer")
            except errors.ResourceExhausted as error:
                with self._lock:
                    idle = self._seats if error.reason in OF_PLANS else None
                    old = idle.popitem(last=False)[1][1] if idle else None
                if old is None:
                    raise
                self._give_up(old)

    def _give_up(self, seat: Seat) -> None:
        seat.plan.delete()
        self.session.delete_buffers(seat.memory)

    def unpublish(self) -> None:
        """Takes the names of all parts away: they go when the last worker has let go of them."""
        for part in range(len(self._parts)):
            name = f"{self.name}.{self._split.split}.{part}-{len(self._parts)}"
            self.session.unpublish(name)

    def _let_go(self) -> None:
        with self._lock:
            seats = [seat for _, seat in self._seats.values()]
            self._seats.clear()
        for seat in seats:
            self._give_up(seat)
        for buffer in self._parts:
            buffer.delete()

    def __repr__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        shape = f"{self._split.k} -> {self._split.n}"
        where = f"{self._split.split} on {', '.join(self.devices)}"
        return f"Linear{named}({shape}, {self.weights.shown}, {where})"
