"""Work: how a session runs programs. Session adds buffers and the lifetime."""

from __future__ import annotations

import asyncio  # aio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gemmd import errors
from gemmd._connection.here_only import Unpickled
from gemmd._memory import inline
from gemmd._memory.inline import Block, Run, Sharing
from gemmd._memory.scratch import Scratch
from gemmd._ops.multiply import (
    INLINE_BYTES,
    Job,
    MatmulInput,
    MatmulKeywords,
    MatmulOptions,
)
from gemmd._wire import methods, programs
from gemmd._wire.programs import Priority, ReportLevel
from gemmd._wire.wire import BytesLike
from gemmd.aio.buffer import Buffer
from gemmd.aio.opening import Opening  # aio
from gemmd.aio.plan import Plan
from gemmd.aio.queue import Queue
from gemmd.aio.transport import Transport
from gemmd.ops import Op
from gemmd.result import Array, Result
from gemmd.tensor import Tensor, TensorLike
from gemmd.v1 import compute_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.arming import Arming
    from gemmd.aio.client import Client


class Work(Unpickled):
    """What submits programs for one session."""

    arming: Arming  # Session has it, and the client
    client: Client

    def __init__(self, transport: Transport, session_id: bytes, sharing: Sharing) -> None:
        self.transport = transport
        self.session_id = session_id
        self.sharing = sharing
        self._head = programs.session_field(session_id)
        self._op_ids = programs.OpIds()
        self._scratch: Scratch[Buffer] = Scratch()

    async def _create_scratch(self, nbytes: int, *, label: str) -> Buffer:
        raise NotImplementedError  # of Buffers; matmul takes its scratch memory from it

    def _lose(self, buffer: Buffer) -> None:
        raise NotImplementedError  # of Buffers

    async def _delete_lost(self) -> None:
        raise NotImplementedError  # of Buffers

    async def execute(
        self,
        ops: Iterable[Op],
        *,
        priority: Priority = "normal",
        report: ReportLevel = "full",
        deterministic: bool = False,
        timeout_s: float | None = None,
    ) -> Result:
        """Runs ops in order, in one round trip. If the program is refused, nothing of it has run.

        Parameters
        ----------
        ops : iterable of Op
            Ops are encoded once, when built: keep them and pass them again.
        deterministic : bool
            Kernels are chosen by what came with the server's version alone: the same bits before
            and after any tuning.
        timeout_s : float, optional
            The deadline, the server's queue included. Default: the client's.

        Raises
        ------
        InvalidArgument, NotFound, FailedPrecondition
            The program is wrong.
        ResourceExhausted
            The queue or a quota is full.
        DeadlineExceeded
            It could not be done in time.
        """
        program = programs.program_of(ops)
        plain = priority == "normal" and report == "full" and not deterministic
        options = b"" if plain else programs.options(priority, report, deterministic)
        return await self._run_ops(program, None, options, timeout_s)

    async def _run_ops(
        self, program: Sequence[Op], body: bytes | None, options: bytes, timeout_s: float | None
    ) -> Result:
        """Execute. `body` is the program encoded, if it was before."""
        reads = programs.reads_of(program)
        shared = await self._share_inline(program, timeout_s)
        if shared is not None:
            done = await self._run_shared(methods.EXECUTE, shared, options, reads, timeout_s)
            if done is not None:
                return done
        pieces = programs.pieces_of(program) if body is None else [body]
        result = await self._run(methods.EXECUTE, [*pieces, options], reads, timeout_s)
        if shared is not None:
            shared.fared_worse()
        return result

    async def _share_inline(self, program: Sequence[Op], timeout_s: float | None) -> Run | None:
        """The program with its inline data in shared memory; None if it goes in the message."""
        if not self.sharing.wants(program):
            return None
        block = await self._take_block(self.sharing.bytes_of(program), timeout_s)
        if block is None:
            return None
        return Run(self.sharing, block, inline.through(program, block), program)

    async def _take_block(self, nbytes: int, timeout_s: float | None) -> Block | None:
        """A part of the memory for inline data, for one run; None if there is none."""
        return None  # Session has the memory

    async def _shares_inline(self, nbytes: int) -> bool:
        """Whether a program with so much data goes through shared memory, as a rule."""
        return False

    async def _run_shared(
        self,
        method: str,
        shared: Run,
        options: bytes,
        reads: Sequence[Tensor],
        timeout_s: float | None,
    ) -> Result | None:
        """None if the same is to be run with its data in the message; then, if that goes well,
        `shared.fared_worse`.
        """
        try:
            answer = await self._send(method, (*shared.body, options), timeout_s)
        except BaseException as error:
            if not shared.failed(error):
                raise
            return None
        return Result(answer, reads, shared.outputs)

    async def _run(
        self,
        method: str,
        body: Sequence[BytesLike],
        reads: Sequence[Tensor],
        timeout_s: float | None,
    ) -> Result:
        """Sends Execute or RunPlan: `body` is the request without session and op_id, in pieces."""
        return Result(await self._send(method, body, timeout_s), reads)

    async def _send(self, method: str, body: Sequence[BytesLike], timeout_s: float | None) -> bytes:
        request = b"".join((self._head, *body, self._op_ids.field()))
        return await self.transport.call(method, request, timeout_s)  # aio
        # sync: transport = self.transport
        # sync: limit = transport.timeout_s if timeout_s is None else timeout_s
        # sync: try:
        # sync:     return transport.method(method)(request, limit)
        # sync: except errors.Error as error:
        # sync:     return transport.again(method, request, limit, error)

    def prepare(
        self,
        ops: Iterable[Op],
        *,
        priority: Priority = "normal",
        report: ReportLevel = "full",
        deterministic: bool = False,
        timeout_s: float | None = None,
    ) -> Prepared:
        """An Execute to be called again and again: `step = session.prepare(ops)`, then `await
        step()`.
        """
        program = list(programs.program_of(ops))
        options = programs.options(priority, report, deterministic)
        return Prepared(self, program, options, timeout_s)

    async def plan(
        self, ops: Iterable[Op], label: str = "", *, deterministic: bool = False
    ) -> Plan:
        """A program that the server compiles once and keeps, on CUDA as a graph. `deterministic`
        and errors as execute's.
        """
        program = list(programs.program_of(ops))
        options = pb.CreatePlanRequest(label=label, deterministic=deterministic)
        request = (self._head, *programs.pieces_of(program), options.SerializeToString())
        answer = await self.transport.call(methods.CREATE_PLAN, b"".join(request))
        return Plan(self, pb.Plan.FromString(answer), program, label, deterministic)

    async def delete_plan(self, plan: Plan) -> None:
        """See `plan.delete`."""
        request = pb.DeletePlanRequest(session_id=self.session_id, plan_id=plan.plan_id)
        await self.transport.ask(request, pb.DeletePlanResponse)

    def queue(
        self, *, priority: Priority = "normal", report: ReportLevel = "full"
    ) -> Opening[Queue]:
        """A command queue: `async with session.queue() as queue: future = await
        queue.submit(ops)`.
        """

        # aio {
        async def opened() -> Queue:
            limits = (await self.client.info()).limits
            about = self.transport, self.session_id, priority, report
            return await Queue.open(*about, limits.max_message_bytes)

        return Opening(opened)
        # }
        # sync: limits = self.client.info().limits
        # sync: about = self.transport, self.session_id, priority, report
        # sync: return Queue(*about, limits.max_message_bytes)

    @overload
    async def matmul(
        self, a: MatmulInput, b: MatmulInput, *, out: None = None, **options: Unpack[MatmulKeywords]
    ) -> Array: ...
    @overload
    async def matmul(
        self, a: MatmulInput, b: MatmulInput, *, out: TensorLike, **options: Unpack[MatmulKeywords]
    ) -> Result: ...
    async def matmul(self, a: MatmulInput, b: MatmulInput, **options: Any) -> Array | Result:
        """activation(alpha * a @ b + bias), with a [m, k] and b [k, n] as in numpy. a may be a
        batch [batch, m, k], and b then one of as many matrices, or a matrix for all.

        Parameters
        ----------
        a, b : array, torch tensor, Tensor, Buffer or Operand
            Arrays and torch's tensors are sent; tensors and buffers are used where they lie.
            Resident weights kept as [n, k] go in as `weights.T`. An Operand is quantised already;
            what stands beside it is quantised to suit. float64 arrays are narrowed to float32, with
            one `PrecisionWarning`.
            `x @ weights.T` is the same without options.
        quantize : str, optional
            "fp8-block" (1x128 for a, 128x128 for b), "fp8-row", "fp8-tensor", "int8-block",
            "int8-row", "int8-tensor": quantises on the device what is not quantised yet.
        bias : array, torch tensor or tensor [n], optional
        alpha : float
        activation : {"none", "relu", "silu", "gelu_tanh", "gelu_erf", "relu_squared"}
        out : Tensor or Buffer [m, n], optional
            Leave the result there, on the device.
        out_dtype : DTypeLike
            Of the returned array: float32 by default, bfloat16 or float16.
        kernel : str
            Insist on a kernel by name.

        Returns
        -------
        Array
            A numpy array whose `.report` says which kernel ran, for how long, and at how many
            TFLOP/s. A torch tensor on the device of a, or of b, where that is one. With `out`: a
            Result with the same report.

        Raises
        ------
        TypeError
            An array is of integers, or of another type that is not multiplied: int64 would lose
            numbers in float32. int8 multiplies int8. Or an option does not exist.
        ValueError
            The shapes do not fit each other, or a word is none of those above.
        """
        chosen = MatmulOptions.of(options)
        try:
            return await self._multiplied(Job(a, b, chosen))
        except errors.NotFound:
            # A caller who deletes all buffers of the session has deleted its scratch, too.
            for one in self._scratch.take_all():
                self._lose(one)
            return await self._multiplied(Job(a, b, chosen))

    async def _multiplied(self, job: Job) -> Array | Result:
        async with self._scratch_for(job.scratch_bytes) as scratch:
            job.place(scratch, scratch.buffer_id)
            if job.inline_bytes <= INLINE_BYTES or await self._shares_inline(job.inline_bytes):
                result = await self.execute(job.inline())
                return job.shown(result.array()) if job.returns_array else result
            for tensor, array in job.writes:
                await scratch.upload(array, tensor.offset_bytes)
            result = await self.execute(job.compute())
            if not job.returns_array:
                return result
            raw = await scratch.download(job.d.offset_bytes, job.d.nbytes)
            out = np.asarray(raw).view(job.d.dtype).reshape(job.d.shape)
            return job.shown(Array.of(out, result.report, raw.transfer))

    async def _new_scratch(self, nbytes: int) -> Buffer:
        # sync: return self._create_scratch(nbytes, label="scratch")
        # aio {
        made = asyncio.ensure_future(self._create_scratch(nbytes, label="scratch"))
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            made.add_done_callback(self._keep_scratch)  # what the server makes now is not lost
            raise

    def _keep_scratch(self, made: asyncio.Future[Buffer]) -> None:
        if not made.cancelled() and made.exception() is None:
            self._scratch.give(made.result()._kept_by_session())

    # }

    @asynccontextmanager
    async def _scratch_for(self, nbytes: int) -> AsyncIterator[Buffer]:
        """Device memory for one call, kept for later ones: a call in steady state creates
        nothing.
        """
        if spare := self._scratch.take_spare():
            for one in spare:
                self._lose(one)
            await self._delete_lost()
        found = self._scratch.take(nbytes)
        if found is None:
            await self._delete_lost()
        buffer = found or (await self._new_scratch(nbytes))._kept_by_session()
        try:
            yield buffer
        except BaseException as error:
            if errors.may_still_run(error):
                self._lose(buffer)  # what runs there may still write
            else:
                self._scratch.give(buffer)
            raise
        self._scratch.give(buffer)


class Prepared(Unpickled):
    """An Execute whose request is encoded: call it. Made by `session.prepare(ops)`."""

    def __init__(
        self, work: Work, program: Sequence[Op], options: bytes, timeout_s: float | None
    ) -> None:
        self.ops = tuple(program)
        self._work = work
        self._body = programs.encode_ops(program)
        self._options = options
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"Prepared({programs.shown(self.ops)})"

    async def __call__(self) -> Result:
        """Runs the program once. Errors as `session.execute`'s."""
        return await self._work._run_ops(self.ops, self._body, self._options, self._timeout_s)
