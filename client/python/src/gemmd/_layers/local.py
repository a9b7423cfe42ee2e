"""How a layer's calls run when the server is on this host: armed plans over shared memory.

A `Place` is the slots armed on a `Memory`, which this process and the server have both mapped: for
each kind of step, those used last. A call copies x in, rings, waits and copies the result out; on a
GPU the caller's stream does all four, and the host waits for nothing.

The copy of a GPU's result is saved where it pays: once some were copied, a few tensors of torch's
own are handed to the server, which writes there, each in turn when the caller has let go of it. They
stay valid whatever becomes of the session, since they are torch's. A captured graph's calls read x
and write the result in the graph's own memory (`graphs`). A compiled program gets the copy: its
results are in memory of the compiler's pool.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from gemmd import errors
from gemmd._layers import graphs, results, seats
from gemmd._layers import rows as rows_
from gemmd._layers.places import DirectResult, GpuCall, HostRun, Known, Place, Seat
from gemmd._layers.results import ResultMemory
from gemmd._layers.seats import Seats
from gemmd._memory import cuda, interop
from gemmd._ops import narrowing
from gemmd.report import Report

if TYPE_CHECKING:
    from gemmd._layers.forward import Forward
    from gemmd._layers.layer import Layer
    from gemmd.buffer import Buffer
    from gemmd.session import Session
    from gemmd.tensor import Tensor

GRAPHS = -1  # the lane of what is captured
MAX_KNOWN = 256  # shapes whose calls take the short way
MAX_KEPT_BYTES = 16 << 20  # of results on one place
LONG_UNUSED = 256  # calls of a place, after which a result makes room for another
MAX_HOST_PLACES = 8  # threads that call at the same time; more take turns


class LocalCalls(Seats):
    """A layer's calls on this host. Thread-safe."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        self._features = layer.out_features
        self._host: list[Place] = []
        self._captured: dict[int, Place] = {}  # for graphs, by the GPU's ordinal here
        # By the plan's rows, x's dtype and GPU, the lane, and the layer's variant.
        self._gpu_calls: dict[tuple[int, Any, int, int, Hashable], GpuCall] = {}
        self._warm: set[tuple[int, Any, Hashable]] = set()  # rows, dtypes and variants that were called
        # Those that `again` knows: by x's shape, dtype and GPU, and the stream.
        self._known: dict[tuple[Any, Any, int, int], Known] = {}
        self._outgrown: list[Place] = []  # that graphs may still ring
        self.is_in_graphs_of_others = False  # which the caller may replay at any time
        self._neighbours.add(self)

    # From the host.

    def on_host(self, step: Forward, x: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Report]:
        """x [m, k], dense, of the step's type, to [m, n]."""
        place = self._take_host_place(step)
        try:
            seat = self._seat(place, step, False)
        except BaseException:
            place.memory.busy.release()
            raise
        return HostRun(place, seat, step, x).result()

    def has_host_places(self) -> bool:
        return bool(self._host)

    def begin(self, step: Forward, x: npt.NDArray[Any]) -> HostRun | None:
        """`on_host` up to the ring; None if that would wait, or ask the server for anything."""
        with self._lock:
            for place in self._host:
                seat = place.seats.get((step, 0))
                if seat is not None and place.memory.busy.acquire(blocking=False):
                    break
            else:
                return None
        return HostRun(place, seat, step, x)

    def _take_host_place(self, step: Forward) -> Place:
        """One that is idle, held by `busy`; several threads have one each."""
        with self._lock:
            small = None
            for place in self._host:
                if place.memory.busy.acquire(blocking=False):
                    if place.memory.fits(step):
                        return place
                    place.memory.busy.release()
                    small = place
            if small is not None:
                self._host.remove(small)
                self._drop(small)
            if len(self._host) < MAX_HOST_PLACES:
                place = Place(self._make("host_shared", step.io_bytes, step.scratch_bytes))
                place.memory.busy.acquire()
                self._host.append(place)
                return place
            place = self._host[0]
        place.memory.busy.acquire()
        if place.memory.fits(step):
            return place
        place.memory.busy.release()
        return self._take_host_place(step)

    # From a CUDA stream.

    def again(self, x: Any) -> Any:
        """`on_gpu` for an x like one before, on the same stream, as most calls of a loop are, with
        fewer questions to torch. None for anything else.
        """
        torch = sys.modules.get("torch")
        if torch is None or type(x) is not torch.Tensor or not self._known:
            return None
        native = torch._C
        if native._len_torch_function_stack():  # a default device, for instance
            with interop.past_torch_functions(torch):
                return self._again(torch, native, x)
        return self._again(torch, native, x)

    def _again(self, torch: Any, native: Any, x: Any) -> Any:
        device = x.get_device()
        if native._cuda_getDevice() != device or x.requires_grad:
            return None
        stream = native._cuda_getCurrentRawStream(device)
        known = self._known.get((x.shape, x.dtype, device, stream))
        if known is None or not x.is_contiguous() or x.is_neg():
            return None
        call, place = known.call, known.call.place
        seat, memory = call.seat, call.memory
        with self._lock, memory.order:
            if memory.stream != stream or not seat.alive:
                return None
            if native._cuda_isCurrentStreamCapturing():
                return None
            direct = call.free_result(stream)
            if direct is not None:
                seat, out, result = direct.seat, None, (0, 0, 0)
            elif call.lacks_result():
                return None
            else:
                call.copied += 1
                out = torch.empty(known.shape, dtype=call.out_dtype, device=x.device)
                result = out.data_ptr(), call.d_at, known.d_bytes
            place.calls = call.seat.used = seat.used = place.calls + 1
            try:
                seat.armed.slot.call_on(
                    stream, call.x_at, x.data_ptr(), known.x_bytes, *result, known.lacking_bytes
                )
            except BaseException as error:
                raise self._not_called(error, seat, direct) from None
            return out if direct is None else direct.memory.handed_out(known.shape, known.rows)

    def on_gpu(self, x: Any, m: int, copied: bool = False) -> Any:
        """x [.., k] of m rows to [.., n], on the current stream, which alone waits. `copied`: to
        memory of the caller's, where torch's compiler must find all that is allocated in its pool.
        """
        torch, device = interop.torch_module(), x.get_device()
        if torch._C._cuda_getDevice() != device:
            with torch.cuda.device(device):
                return self.on_gpu(x, m, copied)
        stream = torch._C._cuda_getCurrentRawStream(device)
        capturing = torch._C._cuda_isCurrentStreamCapturing()
        with self._lock:
            lane = GRAPHS if capturing else self._neighbours.lane_of(device, stream)
            call = self._call_of(x.dtype, m, device, lane)
            place, given = call.place, x
            if x.dtype is not call.in_dtype:
                x = x.to(call.in_dtype)
            if not x.is_contiguous():
                x = x.contiguous()
            if x.is_neg():  # a view that is negated where it is read, as `z.conj().imag`
                x = x.resolve_neg()
            shape = (*x.shape[:-1], self._features)
            into = (call.x_at, x.data_ptr(), m * call.x_row_bytes)
            lacking = call.lacking_bytes(m)
            place.calls = call.seat.used = place.calls + 1
            direct = None
            if not capturing and not copied:
                direct = call.free_result(stream)
                if direct is None and call.lacks_result():
                    direct = self._add_result(torch, call, device, stream)
            if direct is None:
                call.copied += 1
                out = torch.empty(shape, dtype=call.out_dtype, device=x.device)
                seat, result = call.seat, (out.data_ptr(), call.d_at, m * call.d_row_bytes)
                own = graphs.seat_for(self, call, stream, x, m, out) if capturing else None
                if own is not None:
                    seat, reads_x = own
                    result, lacking = (0, 0, 0), 0
                    into = (0, 0, 0) if reads_x else into
            else:
                seat, result = direct.seat, (0, 0, 0)
                seat.used = place.calls
            with call.memory.order:
                if call.memory.stream != stream:
                    call.memory.follow(torch, device, stream, capturing)
                try:
                    seat.armed.slot.call_on(stream, *into, *result, lacking)
                except BaseException as error:
                    raise self._not_called(error, seat, direct) from None
            if capturing:
                self._note(seat, x.nbytes)
            if x.dtype is given.dtype and not capturing and not copied:
                self._know((given.shape, x.dtype, device, stream), Known(call, shape, m))
            return out if direct is None else direct.memory.handed_out(shape, m)

    def captured(self, parts: Sequence[Any], m: int) -> Any:
        """`on_gpu` of what is captured, and whose x is several tensors side by side; None if they must
        be put together first.
        """
        torch, device = interop.torch_module(), parts[0].get_device()
        stream = torch._C._cuda_getCurrentRawStream(device)
        with self._lock:
            call = self._call_of(parts[0].dtype, m, device, GRAPHS)
            wanted = map(interop.torch_dtype, call.step.part_dtypes(len(parts)))
            for one, dtype in zip(parts, wanted, strict=True):
                if one.dtype is not dtype or one.is_neg():
                    return None
            flat = [graphs.rows_in_place(one, m) for one in parts]
            shape = (*parts[0].shape[:-1], self._features)
            out = torch.empty(shape, dtype=call.out_dtype, device=parts[0].device)
            seat = graphs.seat_for_parts(self, call, stream, flat, m, out)
            if seat is None:
                return None
            call.place.calls = call.seat.used = call.place.calls + 1
            with call.memory.order:
                if call.memory.stream != stream:
                    call.memory.follow(torch, device, stream, True)
                try:
                    seat.armed.slot.call_on(stream, 0, 0, 0, 0, 0, 0, 0)
                except BaseException as error:
                    raise self._not_called(error, seat, None) from None
            self._note(seat, sum(one.nbytes for one in parts))
            return out

    def _note(self, seat: Seat, x_bytes: int) -> None:
        if not graphs.note(seat, x_bytes):
            self.is_in_graphs_of_others = True

    # What graphs have for themselves.

    @property
    def session(self) -> Session:
        return self._session

    def give_up_ended(self) -> None:
        """Lets go of what graphs had that are gone."""
        for place in (*self._captured.values(), *self._outgrown):
            for key, seat in list(place.seats.items()):
                if seat.graph is not None and seat.graph.is_over():
                    self.of_graphs -= 1
                    with suppress(errors.Error):
                        place.seats.pop(key).give_up()

    def step_of(self, rows: int, dtype: Any) -> Forward:
        return self._alive().step(rows, dtype, "device_shared")

    def may_have_more_of_graphs(self, most: int) -> bool:
        """Whether the session's layers have fewer seats of that kind."""
        others = self._neighbours.but(self)
        return self.of_graphs + sum(one.of_graphs for one in others) < most

    def seat_of_graph(
        self,
        place: Place,
        step: Forward,
        d: Tensor,
        io: Buffer | tuple[Tensor, ...] | None,
        lent: tuple[Buffer, ...],
    ) -> Seat:
        place.results += 1
        seat = self._seat(place, step, True, place.results, d, io, lent)
        self.of_graphs += 1
        return seat

    def _not_called(
        self, error: BaseException, seat: Seat, direct: DirectResult | None
    ) -> BaseException:
        if direct is not None:
            direct.memory.give_back()
        if isinstance(error, errors.Error):
            return self._session.arming.whole(error, seat.armed.slot_index)
        return error

    def _know(self, key: tuple[Any, Any, int, int], known: Known) -> None:
        if len(self._known) >= MAX_KNOWN and key not in self._known:
            self._known.clear()
        self._known[key] = known

    def _add_result(
        self, torch: Any, call: GpuCall, device: int, stream: int
    ) -> DirectResult | None:
        """Memory for one more result, taken; None if there is enough of it, or none to be had."""
        if len(call.results) >= call.most_results or not self._has_room(call.place, call.step):
            call.copied = 0
            return None
        step, memory = call.step, None
        try:
            memory = self._result_memory(torch, call, device, stream)
            if memory is None:
                call.copied = 0
                return None
            call.place.results += 1
            seat = self._seat(
                call.place, step, True, call.place.results, memory.on_server, lent=(memory,)
            )
        except errors.Error:  # no memory that has a handle, or no slot: results are copied
            call.most_results = 0
            if memory is not None:
                memory.give_back()
                memory.delete()
            return None
        call.results.append(DirectResult(seat, memory))
        return call.results[-1]

    def _result_memory(
        self, torch: Any, call: GpuCall, device: int, stream: int
    ) -> ResultMemory | None:
        step, kept = call.step, [one.memory for one in call.results]
        kind = device, (step.m, step.n), call.out_dtype
        if step.d_bytes > results.MAX_OWN_BYTES:
            shared = self._neighbours.results
            while True:
                found = shared.obtain(torch, self._session, kind, step.d_bytes, stream, kept)
                if found is not None or not self._spare_shared(call.place):
                    return found
        memory = ResultMemory(torch, self._session, *kind)
        memory.take()
        return memory

    def _spare_shared(self, place: Place) -> bool:
        """Gives up a seat with the session's memory that is long unused, for others to have it."""
        old = {
            key: seat
            for key, seat in place.seats.items()
            if seat.lent and not seat.lent_bytes and seat.used + LONG_UNUSED <= place.calls
        }
        if old:
            self._give_up(place, min(old, key=lambda key: old[key].used))
        return bool(old)

    def _has_room(self, place: Place, step: Forward) -> bool:
        """Whether the place may keep one more result. Those long unused make room; if the others
        are too many, what is new is copied: to arm results anew with each call would cost far more.
        """
        own = step.d_bytes if step.d_bytes <= results.MAX_OWN_BYTES else 0
        kept = {key: seat for key, seat in place.seats.items() if seat.lent}
        held = sum(seat.lent_bytes for seat in kept.values())
        while len(place.seats) >= seats.MAX_SEATS or held + own > MAX_KEPT_BYTES:
            key = min(kept, key=lambda key: kept[key].used, default=None)
            if key is None or kept[key].used + LONG_UNUSED > place.calls:
                return False
            held -= kept.pop(key).lent_bytes
            self._give_up(place, key)
        return True

    def _call_of(self, dtype: Any, m: int, device: int, lane: int) -> GpuCall:
        rows, variant = rows_.planned(m), self._alive().variant
        if lane == GRAPHS and (rows, dtype, variant) not in self._warm:
            raise errors.FailedPrecondition(
                f"a graph is being captured and {self._alive()!r} was not called with {m} rows of"
                f" {dtype} before: call it once with that many first",
                reason="NOT_WARM",
            )
        call = self._gpu_calls.get((rows, dtype, device, lane, variant))
        if call is None or not call.seat.alive:
            call = self._prepare(dtype, rows, device, lane)
        return call

    def _prepare(self, dtype: Any, rows: int, device: int, lane: int) -> GpuCall:
        """What a first call with so many rows needs, which takes some milliseconds."""
        layer = self._alive()
        narrowing.warn_of(x=dtype)
        sent = layer.dtype_for(narrowing.activations_as(dtype))
        step = layer.step(rows, sent, "device_shared")
        if lane == GRAPHS:  # nobody sees when one is replayed: it must not have the session's memory
            with cuda.driver().relaxed_capture():
                place = self._place_of_graphs(step, device)
                seat = self._seat(place, step, True)
            seat.captured = True
        else:
            place = self._shared_place(step, device, lane)
            seat = self._seat(place, step, True)
        variant = self._alive().variant
        self._warm.add((rows, dtype, variant))
        key = rows, dtype, device, lane, variant
        before = self._gpu_calls.get(key)
        call = GpuCall(place, seat, step)
        if before is not None and before.place is place:  # its first seat was given up
            call.results = before.results
        self._gpu_calls[key] = call
        return call

    def _shared_place(self, step: Forward, device: int, lane: int) -> Place:
        memory = self._neighbours.join(
            (device, lane), step, lambda io, scratch: self._make("device_shared", io, scratch)
        )
        if memory in self._gpu:
            self._neighbours.leave(memory)  # once is enough
        else:
            self._gpu[memory] = Place(memory)
        return self._gpu[memory]

    def _place_of_graphs(self, step: Forward, device: int) -> Place:
        place = self._captured.get(device)
        if place is None or not place.memory.fits(step):
            if place is not None:
                self._outgrown.append(place)
            memory = self._make("device_shared", step.io_bytes, step.scratch_bytes)
            place = self._captured[device] = Place(memory)
        return place

    # Both.

    def _places(self) -> list[Place]:
        return [*self._host, *self._gpu.values(), *self._captured.values()]

    def _forget(self, place: Place) -> None:
        """Lets go of calls whose seats were given up, and of the memory of their results."""
        if not isinstance(place.memory.mapped, int):  # the host's: calls of others may be under way
            return
        for call in self._gpu_calls.values():
            call.forget()
        self._gpu_calls = {
            key: call for key, call in self._gpu_calls.items() if call.seat.alive or call.results
        }
        self._known = {key: known for key, known in self._known.items() if known.call.seat.alive}

    def close(self) -> None:
        """No call may be under way, and no graph that has captured one may be replayed again."""
        with self._lock:
            places = [*self._places(), *self._outgrown]
            self._host, self._gpu, self._captured, self._outgrown = [], {}, {}, []
            self._gpu_calls.clear()
            self._known.clear()
        for place in places:
            self._drop(place)
