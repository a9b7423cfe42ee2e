"""The fake's services. `fail` scripts the next answers of a method; `calls` says what arrived."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from concurrent import futures
from dataclasses import dataclass, field

import google_crc32c
import grpc
import numpy as np

from gemmd.share import SharedArray, map_descriptor
from gemmd.v1 import admin_service_pb2 as adm
from gemmd.v1 import buffer_service_pb2 as buf
from gemmd.v1 import compute_service_pb2 as comp
from gemmd.v1 import device_service_pb2 as dev
from gemmd.v1 import session_service_pb2 as ses
from gemmd.v1 import types_pb2 as pb

from .armed import Arming
from .machine import Machine, Refused
from .router import Router
from .share import ShareSocket


@dataclass
class Faults:
    """What goes wrong next, each consumed by the call that meets it."""

    statuses: dict[str, list[Refused]] = field(default_factory=lambda: defaultdict(list))
    after_running: dict[str, list[Refused]] = field(default_factory=lambda: defaultdict(list))
    cut_upload_after: list[tuple[int, Refused]] = field(default_factory=list)  # chunks, status
    cut_download_after: list[int] = field(default_factory=list)  # chunks
    corrupt_download_chunk: list[int] = field(default_factory=list)  # index in its stream
    queue_opening: list = field(default_factory=list)  # taken in the place of the queue


class FakeServer:
    def __init__(
        self, directory: str, share: bool = False, credentials=None, arms: bool = False
    ) -> None:
        """`credentials` make it listen on loopback with TLS, instead of on a Unix socket."""
        self.machine = Machine()
        self.faults = Faults()
        self.calls: list[tuple[str, object]] = []
        self.metadata: dict[str, dict[str, str]] = {}  # by method, of the last call
        self.health = b"\x08\x01"  # a HealthCheckResponse: serving
        self.log = adm.LogSettings(level="info")
        self.sessions: set[bytes] = set()
        self.published: dict[str, bytes] = {}
        self.plans: dict[bytes, list[pb.Op]] = {}
        self.replays: dict[bytes, comp.ExecuteResponse] = {}
        self.batches_per_message = 3  # of a queue; 0: as before there were such messages
        self.queue_messages: list[int] = []  # how many batches came in each
        self.runs = 0
        self.under_mps = False
        self.delay_s = 0.0  # before GetServerInfo answers, cut short when the fake closes
        self.shared: dict[bytes, SharedArray] = {}
        self.share = ShareSocket(f"{directory}/share.sock") if share else None
        self.arming = Arming(self) if arms else None
        self.drain = threading.Event()
        self.stop_holding = threading.Event()
        self.cut_hold = threading.Event()  # of one stream
        self.held: set[bytes] = set()
        self._lock = threading.Lock()
        # Hold streams and queues keep a thread each.
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=24))
        self._server.add_generic_rpc_handlers((Router(self),))
        if credentials is not None:
            self.target = f"127.0.0.1:{self._server.add_secure_port('127.0.0.1:0', credentials)}"
        else:
            self.target = f"unix:{directory}/{'sharing' if share else 'plain'}.sock"
            self._server.add_insecure_port(self.target)
        self._server.start()

    def fail(self, method: str, code: str, message: str = "", reason: str = "", times: int = 1):
        """The next `times` calls of the method are refused before they do anything."""
        self.faults.statuses[method] += [Refused(code, message, reason)] * times

    def count(self, method: str) -> int:
        return sum(1 for name, _ in self.calls if name == method)

    def close(self) -> None:
        self.stop_holding.set()
        self._server.stop(None).wait()
        if self.arming is not None:
            self.arming.close()
        if self.share is not None:
            self.share.close()

    # What the services do. Each takes the request and returns the answer.

    def open_session(self, request: ses.OpenSessionRequest) -> ses.OpenSessionResponse:
        answer = ses.OpenSessionResponse(session_id=os.urandom(16), device="cpu:0", name="s-1")
        answer.ttl.CopyFrom(request.ttl)
        self.sessions.add(answer.session_id)
        return answer

    def keep_alive(self, request: ses.KeepAliveRequest) -> ses.KeepAliveResponse:
        if request.session_id not in self.sessions:
            raise Refused("NOT_FOUND", "the session has ended", "SESSION_GONE")
        answer = ses.KeepAliveResponse()
        if request.session_id not in self.held:
            answer.expire_time.GetCurrentTime()
        return answer

    def close_session(self, request: ses.CloseSessionRequest) -> ses.CloseSessionResponse:
        self.sessions.discard(request.session_id)
        return ses.CloseSessionResponse()

    def get_log(self, _: adm.GetLogRequest) -> adm.LogSettings:
        return self.log

    def set_log(self, request: adm.SetLogRequest) -> adm.LogSettings:
        self.log.level = request.level or self.log.level
        if request.HasField("sample_calls"):
            self.log.sample_calls = request.sample_calls
        return self.log

    def end_session(self, request: adm.EndSessionRequest) -> adm.EndSessionResponse:
        if request.name != "s-1":
            raise Refused("NOT_FOUND", f"there is no session {request.name}", "SESSION_GONE")
        self.sessions.clear()
        return adm.EndSessionResponse()

    def get_server_info(self, _: dev.GetServerInfoRequest) -> dev.ServerInfo:
        self.stop_holding.wait(self.delay_s)
        address = self.share.address if self.share is not None else ""
        return dev.ServerInfo(
            version="fake", tenant="default", share_socket=address, draining=self.drain.is_set(),
            under_mps=self.under_mps,
        )  # fmt: skip

    def create_buffer(self, request: buf.CreateBufferRequest) -> buf.Buffer:
        size = request.size_bytes
        if request.dtype:
            width = {1: 4, 2: 2, 3: 2, 4: 1, 5: 1, 6: 4, 7: 1}[request.dtype]
            size = size or int(np.prod(request.shape)) * width
        if size <= 0:
            raise Refused("INVALID_ARGUMENT", f"size_bytes={size} is not positive", "SIZE")
        made = buf.Buffer(
            buffer_id=os.urandom(16), size_bytes=size, dtype=request.dtype,
            device=request.device or "cpu:0",
            shape=request.shape, label=request.label, memory_kind=request.memory_kind,
        )  # fmt: skip
        if request.memory_kind == buf.MEMORY_KIND_HOST_SHARED:
            self.shared[made.buffer_id] = SharedArray(size, "i8")
            self.machine.memory[made.buffer_id] = self.shared[made.buffer_id].array.view(np.uint8)
        else:
            self.machine.memory[made.buffer_id] = np.zeros(size, np.uint8)
        self.machine.described[made.buffer_id] = made
        return made

    def known(self, buffer_id: bytes) -> buf.Buffer:
        if buffer_id not in self.machine.memory:
            raise Refused("NOT_FOUND", f"buffer {buffer_id.hex()} does not exist", "BUFFER")
        return self.machine.described[buffer_id]

    def get_buffer(self, request: buf.GetBufferRequest) -> buf.Buffer:
        return self.known(request.buffer_id)

    def list_buffers(self, request: buf.ListBuffersRequest) -> buf.ListBuffersResponse:
        every = list(self.machine.described.values())
        start = int(request.page_token or 0)  # pages of two, so that every test turns some
        token = str(start + 2) if start + 2 < len(every) else ""
        return buf.ListBuffersResponse(buffers=every[start : start + 2], next_page_token=token)

    def delete_buffers(self, request: buf.DeleteBuffersRequest) -> buf.DeleteBuffersResponse:
        freed = sum(self.known(one).size_bytes for one in request.buffer_ids)
        for one in request.buffer_ids:
            del self.machine.memory[one], self.machine.described[one]
            self.shared.pop(one, None)
        return buf.DeleteBuffersResponse(freed_bytes=freed)

    def publish_buffer(self, request: buf.PublishBufferRequest) -> buf.PublishBufferResponse:
        if request.name in self.published:
            raise Refused("ALREADY_EXISTS", f'name="{request.name}" is taken', "NAME")
        self.published[request.name] = request.buffer_id
        self.known(request.buffer_id).read_only = True
        self.known(request.buffer_id).published_name = request.name
        return buf.PublishBufferResponse()

    def find_buffer(self, request: buf.FindBufferRequest) -> buf.Buffer:
        if request.name not in self.published:
            raise Refused("NOT_FOUND", f'name="{request.name}" is not published', "NAME")
        return self.known(self.published[request.name])

    def unpublish_buffer(self, request: buf.UnpublishBufferRequest) -> buf.UnpublishBufferResponse:
        found = self.machine.described.get(self.published.pop(request.name))
        if found is not None:
            found.published_name = ""
        return buf.UnpublishBufferResponse()

    def export_buffer(self, request: buf.ExportBufferRequest) -> buf.ExportBufferResponse:
        if self.share is None or request.buffer_id not in self.shared:
            raise Refused("FAILED_PRECONDITION", "the buffer is not HOST_SHARED", "NOT_SHARED")
        memory = self.shared[request.buffer_id]
        return buf.ExportBufferResponse(
            token=self.share.grant(memory.descriptor),
            share_socket=self.share.address,
            size_bytes=memory.size_bytes,
        )

    def import_buffer(self, request: buf.ImportBufferRequest) -> buf.Buffer:
        descriptor = self.share.received.pop(request.token)
        made = buf.Buffer(
            buffer_id=os.urandom(16), size_bytes=request.size_bytes, device="cpu:0",
            memory_kind=buf.MEMORY_KIND_HOST_SHARED, dtype=request.dtype, shape=request.shape,
        )  # fmt: skip
        memory = map_descriptor(descriptor, request.size_bytes, writable=True)
        os.close(descriptor)
        self.machine.memory[made.buffer_id] = memory
        self.machine.described[made.buffer_id] = made
        return made

    def run_ops(self, ops, inputs=()) -> tuple[pb.ProgramReport, list[bytes]]:
        with self._lock:
            began = time.perf_counter()
            outputs = self.machine.run(ops, inputs)
            self.runs += 1
            seconds = time.perf_counter() - began
        report = pb.ProgramReport(device="cpu:0", queue_seconds=1e-6, device_seconds=seconds)
        for op in ops:
            name = op.WhichOneof("kind")
            shared = op.write.HasField("from") or op.read.HasField("to")
            report.ops.add(
                op=name, kernel="fake_copy" if shared else f"fake_{name}",
                reason=pb.CHOICE_REASON_ONLY,
                device_seconds=seconds / len(ops), flops=1e6 if name == "matmul" else 0.0,
            )  # fmt: skip
        return report, outputs

    def replayable(self, op_id: bytes, ops, inputs=()) -> comp.ExecuteResponse:
        if op_id in self.replays:
            answer = comp.ExecuteResponse()
            answer.CopyFrom(self.replays[op_id])
            answer.replayed = True
            return answer
        report, outputs = self.run_ops(ops, inputs)
        answer = comp.ExecuteResponse(report=report, outputs=outputs)
        if op_id:
            self.replays[op_id] = answer
        return answer

    def execute(self, request: comp.ExecuteRequest) -> comp.ExecuteResponse:
        return self.replayable(request.op_id, request.ops)

    def create_plan(self, request: comp.CreatePlanRequest) -> comp.Plan:
        plan_id = os.urandom(16)
        self.plans[plan_id] = list(request.ops)
        steps = [comp.PlanStep(kernel=f"fake_{op.WhichOneof('kind')}") for op in request.ops]
        return comp.Plan(plan_id=plan_id, device="cpu:0", estimated_seconds=1e-6, steps=steps)

    def planned(self, run: comp.PlanRun) -> list[pb.Op]:
        if run.plan_id not in self.plans:
            raise Refused("NOT_FOUND", "the plan does not exist", "PLAN")
        ops, places = [], list(run.inline_at)
        for op in self.plans[run.plan_id]:
            data = op.SerializeToString()
            for pair in run.rebind:
                data = data.replace(pair.from_buffer_id, pair.to_buffer_id)
            planned = pb.Op.FromString(data)
            if places and planned.HasField("write"):
                getattr(planned.write, "from").CopyFrom(places.pop(0))
            elif places and planned.HasField("read"):
                planned.read.to.CopyFrom(places.pop(0))
            ops.append(planned)
        return ops

    def run_plan(self, request: comp.RunPlanRequest) -> comp.ExecuteResponse:
        return self.replayable(request.op_id, self.planned(request.run), request.run.inputs)

    def delete_plan(self, request: comp.DeletePlanRequest) -> comp.DeletePlanResponse:
        if self.plans.pop(request.plan_id, None) is None:
            raise Refused("NOT_FOUND", "the plan does not exist", "PLAN")
        return comp.DeletePlanResponse()

    def list_devices(self, _: dev.ListDevicesRequest) -> dev.ListDevicesResponse:
        return dev.ListDevicesResponse(devices=[dev.Device(name="cpu:0", buffers=1)])

    def explain(self, request: comp.ExplainRequest) -> comp.ExplainResponse:
        problem = request.problem
        words = f"{problem.m}x{problem.n}x{problem.k} dtype {problem.operand_dtype}"
        return comp.ExplainResponse(device=request.device, problem=words)

    # Streams.

    def hold(self, request: ses.HoldRequest, context):
        self.held.add(request.session_id)
        try:
            yield ses.HoldEvent(kind=ses.HoldEvent.KIND_HELD)
            while context.is_active() and not self.stop_holding.is_set():
                if self.cut_hold.is_set():
                    self.cut_hold.clear()
                    raise Refused("UNAVAILABLE", "connection reset")
                if self.drain.wait(0.01):
                    yield ses.HoldEvent(kind=ses.HoldEvent.KIND_DRAINING)
                    self.stop_holding.wait()
        finally:
            self.held.discard(request.session_id)

    def upload(self, requests, context) -> buf.UploadResponse:
        known, expected = None, 0
        cut = self.faults.cut_upload_after.pop(0) if self.faults.cut_upload_after else None
        for count, request in enumerate(requests):
            if known is None:
                known = self.known(request.buffer_id)
                known.upload_offset_bytes = expected = request.offset_bytes
                known.committed_bytes = 0
            if cut and count == cut[0]:
                raise cut[1]
            if google_crc32c.value(request.data) != request.crc32c:
                raise Refused("DATA_LOSS", "the CRC32C does not match", "CRC_MISMATCH")
            if request.offset_bytes != expected:
                raise Refused("INVALID_ARGUMENT", f"offset_bytes: {expected} comes next", "OFFSET")
            raw = self.machine.memory[known.buffer_id]
            raw[expected : expected + len(request.data)] = np.frombuffer(request.data, np.uint8)
            expected += len(request.data)
            known.committed_bytes = expected - known.upload_offset_bytes
        return buf.UploadResponse(committed_bytes=known.committed_bytes)

    def download(self, request: buf.DownloadRequest, context):
        cut = self.faults.cut_download_after.pop(0) if self.faults.cut_download_after else None
        bad = self.faults.corrupt_download_chunk
        bad_index = bad.pop(0) if bad else None
        self.known(request.buffer_id)
        raw = self.machine.memory[request.buffer_id]
        end = request.offset_bytes + request.length_bytes if request.length_bytes else raw.size
        for index, at in enumerate(range(request.offset_bytes, end, request.chunk_bytes)):
            if index == cut:
                raise Refused("UNAVAILABLE", "connection reset")
            data = raw[at : min(at + request.chunk_bytes, end)].tobytes()
            crc = google_crc32c.value(data) ^ (index == bad_index)
            yield buf.DownloadResponse(offset_bytes=at, crc32c=crc, data=data)

    def queue(self, requests, context):
        if self.faults.queue_opening:
            yield from self.faults.queue_opening.pop(0)(requests, context)
        failed = False
        for request in requests:
            if request.WhichOneof("kind") == "open":
                opened = comp.QueueOpened(
                    window_batches=4, window_bytes=1 << 20, device="cpu:0",
                    max_batches_per_message=self.batches_per_message,
                )  # fmt: skip
                yield comp.QueueResponse(opened=opened)
                continue
            batches = [request.batch] if request.HasField("batch") else request.batches.items
            self.queue_messages.append(len(batches))
            for batch in batches:
                item = self.completed(batch, failed and not batch.resume)
                failed = item.code != 0
                yield comp.QueueResponse(completions=comp.Completions(items=[item]))

    def completed(self, batch, failed) -> comp.Completion:
        item = comp.Completion(sequence=batch.sequence)
        try:
            if failed:
                raise Refused("ABORTED", "a batch before it failed", "EARLIER_FAILURE")
            ops = self.planned(batch.plan) if batch.HasField("plan") else batch.ops
            report, outputs = self.run_ops(ops, batch.plan.inputs)
            item.report.CopyFrom(report)
            item.outputs.extend(outputs)
        except Refused as refused:
            item.code = grpc.StatusCode[refused.code].value[0]
            item.message, item.reason = refused.message, refused.reason
        return item
