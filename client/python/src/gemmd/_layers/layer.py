"""Layer: what Linear and MLP have in common."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from gemmd import dtypes, errors
from gemmd._connection.here_only import Unpickled
from gemmd._layers import linear_step
from gemmd._layers.forward import Forward, Way
from gemmd._layers.kept import OF_PLANS, Kept, KeptPlan, Place
from gemmd._layers.local import LocalCalls
from gemmd._layers.memory import neighbours
from gemmd._layers.places import HostRun
from gemmd._layers.rows import planned
from gemmd._memory import cuda, interop
from gemmd._ops.multiply import INLINE_BYTES
from gemmd.buffer import Buffer
from gemmd.buffers import MemoryKind
from gemmd.ops import Op
from gemmd.plan import Plan
from gemmd.resident import all_or_none, why_not_on_gpu
from gemmd.result import Array, Result
from gemmd.tensor import Tensor

if TYPE_CHECKING:
    from gemmd.session import Session

RESULTS = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
TIME_SLICED = (
    "this process and the gemmd server take turns on the GPU, because {who} runs under MPS: a call"
    " costs some 290 us beyond its work instead of some 20. Run `nvidia-cuda-mps-control -d`, then"
    " start both with the same CUDA_MPS_PIPE_DIRECTORY (docs/operations.md)"
)


def check_result(out_dtype: dtypes.DTypeLike | None) -> None:
    """Raises ValueError for what no layer's result is of: said before the weight is sent."""
    if out_dtype is not None and dtypes.as_dtype(out_dtype) not in RESULTS:
        names = ", ".join(one.name for one in RESULTS)
        raise ValueError(f"out_dtype={out_dtype!r} is no result of a layer; use one of {names}")


class Layer(Unpickled):
    """Weights on the server and programs that apply them to rows. Base of `Linear` and `MLP`.

    Thread-safe: host calls of several threads run side by side, each in memory of its own. So do
    calls of up to four CUDA streams; those of more follow one another.

    Attributes
    ----------
    in_features, out_features : int
    device : str
        The server's, "cuda:0".
    """

    def __init__(
        self,
        session: Session,
        device: str,
        features: tuple[int, int],
        out_dtype: dtypes.DTypeLike | None,
    ) -> None:
        self.session = session
        self.device = device
        self.in_features, self.out_features = features
        self._out_dtype = None if out_dtype is None else dtypes.as_dtype(out_dtype)
        self._closed = False
        self._lock = threading.Lock()
        self._plans: Kept[KeptPlan] = Kept()
        self._gpu_ways: dict[int, str] = {}
        self._neighbours = neighbours(session)
        self._local = LocalCalls(self)
        self._traced: Any = None
        if interop.has_torch():
            from gemmd._layers import torch_ops

            self._traced = torch_ops.Traced(self)

    _elsewhere = "give it a name, and make it by that name in each process, without the weight"

    # What layers differ in.

    def dtype_for(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """What x of that type is sent in."""
        raise NotImplementedError

    def step(self, m: int, dtype: np.dtype[Any], way: Way) -> Forward:
        """How m rows of that type lie in memory on their way."""
        raise NotImplementedError

    def unpublish(self) -> None:
        """Takes the weights' names away."""
        raise NotImplementedError

    name: str  # "" if it has none
    _held: Any  # the weights' buffer or buffers, as a step takes them

    @property
    def held(self) -> tuple[Buffer, ...]:
        """Those of the weights."""
        return self._held if isinstance(self._held, tuple) else (self._held,)

    def result_dtype(self, sent: np.dtype[Any]) -> np.dtype[Any]:
        """What comes back for x sent in that type."""
        return sent if self._out_dtype is None else self._out_dtype

    @property
    def _columns_sent(self) -> int:
        """Of a row, on its way to the server."""
        return self.in_features

    @property
    def variant(self) -> Hashable:
        """What a call's step depends on beside its rows and their type."""
        return None

    def program(
        self,
        step: Forward,
        io: Buffer | tuple[Tensor, ...],
        scratch: Buffer,
        result: Tensor | None = None,
    ) -> list[Op]:
        """The ops of a step, on these buffers; a plan of them is rebound to others."""
        return step.program(self._held, io, scratch, result)

    # Calls.

    @overload
    def __call__(self, x: npt.NDArray[Any]) -> Array: ...
    @overload
    def __call__(self, x: Any) -> Any: ...
    def __call__(self, x: Any) -> Any:
        """`forward`."""
        return self.forward(x)

    def forward(self, x: Any) -> Any:
        """x [.., k] to [.., n]. Without a row, no call is made and nothing reported.

        A numpy array gives a `gemmd.Array`, with the `.report` of the call. A torch tensor gives a
        torch tensor on its device. One on the server's own GPU does not leave it: its stream hands
        the work over and waits for it, the host does not. So it may be captured in a graph, once
        the layer was called with as many rows; and `torch.compile(fullgraph=True)` knows it, where
        torch was imported before the layer was made. Of a tensor that requires a gradient the
        result does, too, and its backward raises RuntimeError: layers have none.

        Raises
        ------
        ValueError
            The last extent is not k.
        TypeError
            An element type gemmd has none of.
        """
        traced = self._traced
        if traced is not None:
            if traced.is_compiling():
                return traced.call(x)
            if not traced.carries_tangents():
                again = self._local.again(x)
                if again is not None:
                    return again
            if traced.sees(x):
                return traced.call(x)
        return self.run(x)

    def run(self, x: Any, copied: bool = False) -> Any:
        """`forward`, past torch's compiler. `copied`: the result is in no memory of the layer's."""
        self._check_open()
        if interop.torch_of(x) is None:
            return self._on_host(interop.as_numpy(x))
        from gemmd._layers import transforms

        if not x.requires_grad and not transforms.carries_tangents():
            return self._on_tensor(x, copied)
        from gemmd._layers import torch_ops

        return torch_ops.refusing(self._on_tensor(x.detach(), copied), x)

    def _on_tensor(self, x: Any, copied: bool) -> Any:
        if x.is_cuda and not self.why_not_on_gpu(x.get_device()):
            m = linear_step.rows_of(x.shape, self._columns_sent)
            if m:
                return self._local.on_gpu(x, m, copied)
        return interop.as_torch(self._on_host(interop.as_numpy(x))).to(x.device)

    def captured(self, parts: Sequence[Any]) -> Any:
        """The result for tensors that x is put together of, each read where it lies, if a graph is
        being captured; else None.
        """
        first = parts[0]
        if not first.is_cuda or not interop.torch_module()._C._cuda_isCurrentStreamCapturing():
            return None
        self._check_open()
        rows = first.numel() // first.shape[-1]
        if not rows or self.why_not_on_gpu(first.get_device()):
            return None
        return self._local.captured(parts, rows)

    @property
    def is_in_graphs_of_others(self) -> bool:
        """Whether the caller has captured it in a graph."""
        return self._local.is_in_graphs_of_others

    def module(self) -> Any:
        """The layer as a torch.nn.Module, for a model of modules: `block.mlp = mlp.module()`. It
        has no parameters, so what moves, converts or saves a model leaves it as it is. A deep copy
        calls the same layer. The layer is closed apart.
        """
        interop.torch_module()
        from gemmd._layers.torch_module import LayerModule

        return LayerModule(self)

    def _check_open(self) -> None:
        self.session.transport.home.check()
        if self._closed:
            raise errors.FailedPrecondition(
                f"{self!r} is closed; make another, by its name if it has one", reason="CLOSED"
            )

    def why_not_on_gpu(self, device: int) -> str:
        """Why tensors of this process's GPU `device` go through the host; "" if they need not."""
        why = self._gpu_ways.get(device)
        if why is None:
            why = why_not_on_gpu(self.session, device, self.device) or self.why_not_armed()
            self._gpu_ways[device] = why
            if not why:
                self._warn_if_time_sliced(device)
        return why

    def _warn_if_time_sliced(self, device: int) -> None:
        """Once a process: Python shows a warning of one place and text once."""
        server = self.session.client.info().under_mps
        caller = not cuda.driver().is_time_sliced(device)
        if not (server and caller):
            who = "only the server" if server else "only this process" if caller else "neither"
            warnings.warn(TIME_SLICED.format(who=who), RuntimeWarning, stacklevel=2)

    def why_not_armed(self) -> str:
        """Why calls go by gRPC; "" if they are rung in memory shared with the server."""
        return self.session.arming.why_not()

    def _dense(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        m = linear_step.rows_of(x.shape, self._columns_sent)
        flat = np.ascontiguousarray(x, self.dtype_for(linear_step.activations(x)))
        return flat.reshape(m, self._columns_sent)

    def begin(self, x: npt.NDArray[Any]) -> HostRun | None:
        """`forward` of an array up to the ring, if it goes by one and waits for nothing; else None,
        and nothing is begun. `ended` is the rest.
        """
        self._check_open()
        flat = self._dense(x)
        if not len(flat) or not self._local.has_host_places():
            return None
        return self._local.begin(self.step(planned(len(flat)), flat.dtype, "host_shared"), flat)

    def ended(self, run: HostRun, x: npt.NDArray[Any]) -> Array:
        """What `forward` returns, once `run` of x is done."""
        out, report = run.result()
        return Array.of(out.reshape(*x.shape[:-1], self.out_features), report)

    def _on_host(self, x: npt.NDArray[Any]) -> Array:
        flat = self._dense(x)
        m = len(flat)
        if not m:
            return self._of_no_row(x, flat.dtype)
        if not self.why_not_armed():
            step = self.step(planned(m), flat.dtype, "host_shared")
            out, report = self._local.on_host(step, flat)
        else:
            step = self.step(planned(m), flat.dtype, "inline")
            if step.x_bytes + step.d_bytes > INLINE_BYTES:
                step = self.step(planned(m), flat.dtype, "moved")
            with self._place(step) as place:
                out, result = self._through(step, place, flat)
                report = result.report
        return Array.of(out.reshape(*x.shape[:-1], self.out_features), report)

    def _of_no_row(self, x: npt.NDArray[Any], sent: np.dtype[Any]) -> Array:
        """The result for x without a row, of which the server has nothing to do."""
        return Array.of(np.empty((*x.shape[:-1], self.out_features), self.result_dtype(sent)))

    # Calls of a server that is elsewhere.

    def _through(
        self, step: Forward, place: Place, x: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], Result]:
        rows = len(x)
        if step.way == "inline" or step.filler is not None:
            x = step.filled(x)
        if step.way == "inline":
            result = self._run_plan(step, place, [x])
            return result[0][:rows], result
        place.io.upload(x.reshape(-1).view(np.uint8))
        result = self._run_plan(step, place, None)
        got = np.asarray(place.io.download(step.d_at, rows * step.d_row_bytes))
        return got.view(step.out_dtype).reshape(rows, step.n), result

    def _run_plan(
        self, step: Forward, place: Place, inputs: list[npt.NDArray[Any]] | None
    ) -> Result:
        with self._lock:
            kept = self._plans.take(step)
            if kept is None:  # rare, and two threads must not make it twice: under the lock
                program = self.program(step, place.io, place.scratch)
                uses_scratch = any(place.scratch.buffer_id in op.wire for op in program)
                plan = self._made_plan(program)
                kept = KeptPlan(plan, place.io, place.scratch, uses_scratch)
                old = self._plans.add(step, kept)
                if old is not None:
                    old.plan.delete()
        try:
            return kept.plan.run(kept.rebound_to(place.io, place.scratch), inputs)
        finally:
            with self._lock:
                self._plans.give(step)

    def _made_plan(self, program: list[Op]) -> Plan:
        """In the room of one that is kept, if the server has no other."""
        while True:
            try:
                return self.session.plan(program)
            except errors.ResourceExhausted as error:
                old = self._plans.take_idle() if error.reason in OF_PLANS else None
                if old is None:
                    raise
                old.plan.delete()

    @contextmanager
    def _place(self, step: Forward) -> Iterator[Place]:
        """Memory for one call, kept for later ones: a call in steady state creates nothing."""
        place, small = self._neighbours.take_idle(self.device, step)
        if place is None:
            if small is not None:
                self._drop(small)
            place = self._new_place(step)
        try:
            yield place
        except BaseException as error:
            if errors.may_still_run(error):
                self._lose((place.io, place.scratch))
            else:
                self._give_back(place)
            raise
        self._give_back(place)

    def _give_back(self, place: Place) -> None:
        self._neighbours.give_idle(self.device, place)

    def _lose(self, memory: Iterable[Buffer]) -> None:
        """What runs there may still write. The server frees the memory behind it."""
        for buffer in memory:
            self.session._lose(buffer)

    def _new_place(self, step: Forward) -> Place:
        self.session._delete_lost()
        return Place(*self.new_memory(step.io_bytes, step.scratch_bytes))

    def new_memory(
        self, io_bytes: int, scratch_bytes: int, io_kind: MemoryKind = "device"
    ) -> list[Buffer]:
        """`io` and `scratch`, or neither."""
        kinds: list[tuple[int, MemoryKind]] = [(io_bytes, io_kind), (scratch_bytes, "device")]
        with all_or_none() as made:
            for nbytes, kind in kinds:
                made.append(
                    self.session._create_scratch(
                        nbytes, memory_kind=kind, device=self.device, label="activations"
                    )
                )
            return made

    def _drop(self, place: Place) -> None:
        self.session.delete_buffers([place.io, place.scratch])

    # Lifetime.

    def close(self) -> None:
        """Lets go of the weights, the plans and the memory. No call may be under way, and no graph
        that has captured one may be replayed again. The session's end does the same. Again: does
        nothing.
        """
        if self._closed:
            return
        self._closed = True
        with suppress(errors.NotFound):  # all of it is gone with its session
            self._local.close()
            with self._lock:
                plans = self._plans.clear()
            for kept in plans:
                kept.plan.delete()
            for place in self._neighbours.close(self._local):
                self._drop(place)
            self._let_go()

    def _let_go(self) -> None:
        """Of the weights, and of what else layers differ in."""
        raise NotImplementedError

    def _way(self) -> str:
        why = self.session.arming.known_why_not()
        if why is None:
            return "not called yet"
        return f"by gRPC: {why}" if why else "armed"

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(errors.beside(kind)):
            self.close()
