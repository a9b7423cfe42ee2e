"""Spans of calls, from a real daemon to a collector, read by OpenTelemetry's own message classes."""

from __future__ import annotations

import contextlib
import queue
import re
import signal
import subprocess
import threading
import time
import urllib.request
from concurrent import futures

import grpc
import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as collector_pb
from opentelemetry.proto.trace.v1 import trace_pb2 as pb

import gemmd
from gemmd.v1 import compute_service_pb2 as compute_pb

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"

CONFIG = """
listeners {{ address: "unix:{dir}/gemmd.sock" tenant: "vision" }}
tenants {{ name: "vision" }}
devices {{ name: "cpu:0" threads: 1 memory_bytes: 268435456 }}
metrics {{ address: "127.0.0.1:0" }}
tracing {{ otlp_endpoint: "unix:{dir}/collector.sock" {tracing} }}
"""


class Collector(grpc.GenericRpcHandler):
    """Keeps what it is sent, by trace. `held` keeps it from answering."""

    def __init__(self, folder):
        self.address = f"unix:{folder}/collector.sock"
        self.requests = queue.Queue()
        self.spans = []
        self.held = threading.Event()
        self.held.set()
        self.refusal = None
        self._server = None

    def start(self):
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self):
        self.held.set()
        if self._server is not None:
            self._server.stop(0)

    def service(self, details):
        if details.method != EXPORT:
            return None
        return grpc.unary_unary_rpc_method_handler(self._export)

    def _export(self, request, context):
        self.held.wait(600)
        if self.refusal is not None:
            context.abort(self.refusal, "not today")
        self.requests.put(collector_pb.ExportTraceServiceRequest.FromString(request))
        return collector_pb.ExportTraceServiceResponse().SerializeToString()

    def until(self, found, patience_s=60.0):
        """All spans so far, once `found(spans)`."""
        end = time.monotonic() + patience_s
        while not found(self.spans):
            try:
                request = self.requests.get(timeout=max(end - time.monotonic(), 0.001))
            except queue.Empty:
                pytest.fail(f"in {patience_s} s there came: {[one.name for one in self.spans]}")
            for resource in request.resource_spans:
                about = {one.key: one.value.string_value for one in resource.resource.attributes}
                assert about["service.name"] == "gemmd" and about["service.instance.id"]
                for scope in resource.scope_spans:
                    self.spans += scope.spans
        return self.spans


class Daemon:
    def __init__(self, gemmd_path, folder, tracing):
        path = folder / "gemmd.textproto"
        path.write_text(CONFIG.format(dir=folder, tracing=tracing))
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen([gemmd_path, "--config", path], stderr=self.log)
        self.target = f"unix:{folder}/gemmd.sock"

    def metrics_address(self, patience_s=60.0):
        """As the daemon logs it, which it does behind its first answers."""
        end = time.monotonic() + patience_s
        while not (found := re.search('metrics="([^"]+)"', self.logged())):
            assert time.monotonic() < end, self.logged()
            time.sleep(0.02)
        return found[1]

    def count(self, name):
        address = self.metrics_address()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(name + " ")))

    def logged(self):
        return (self.log.seek(0), self.log.read())[1]

    def said(self, word):
        return self.logged().count(word)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture
def collector(tmp_path):
    found = Collector(tmp_path)
    yield found
    found.stop()


@pytest.fixture
def start(request, tmp_path):
    started = []

    def begin(tracing="sample: 1"):
        daemon = Daemon(request.config.getoption("--gemmd"), tmp_path, tracing)
        started.append(daemon)
        return daemon

    yield begin
    for daemon in started:
        daemon.process.kill()
        daemon.process.wait()
        daemon.log.close()


def named(spans, name):
    return [one for one in spans if one.name == name]


def all_of(*names):
    """What waits for a span of each name: a call's is written behind its answer, maybe behind the next call's."""
    return lambda spans: set(names) <= {one.name for one in spans}


def about(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def call(target, traceparent):
    with grpc.insecure_channel(target) as channel:
        info = channel.unary_unary("/gemmd.v1.DeviceService/GetServerInfo")
        info(b"", metadata=[("traceparent", traceparent)], wait_for_ready=True, timeout=60)


def test_a_call_and_its_parts_arrive(collector, start):
    collector.start()
    daemon = start()
    with gemmd.connect(daemon.target) as client, client.session(shared_memory="off") as session:
        weights = session.upload(np.eye(256, dtype="f4"))
        session.matmul(np.ones((8, 256), "f4"), weights.T)
        with pytest.raises(gemmd.NotFound):
            session.find("nobody")
    calls = ("gemmd.Execute", "gemmd.Upload", "gemmd.FindBuffer", "gemmd.CloseSession")
    spans = collector.until(all_of(*calls, "queue", "device", "transfer"))

    execute = named(spans, "gemmd.Execute")[0]
    assert execute.kind == pb.Span.SPAN_KIND_SERVER and not execute.parent_span_id
    assert len(execute.trace_id) == 16 and len(execute.span_id) == 8
    assert about(execute)["gemmd.tenant"] == "vision" and about(execute)["gemmd.code"] == "OK"
    parts = [one for one in spans if one.parent_span_id == execute.span_id]
    assert [one.name for one in parts] == ["queue", "device"]
    waits, runs = parts
    assert all(one.trace_id == execute.trace_id for one in parts)
    assert waits.end_time_unix_nano <= runs.start_time_unix_nano + 1000  # rounded
    assert runs.start_time_unix_nano < runs.end_time_unix_nano <= execute.end_time_unix_nano
    assert about(runs) == {
        "gemmd.device": "cpu:0", "gemmd.kernel": about(runs)["gemmd.kernel"], "gemmd.ops": 3,
    }  # fmt: skip
    assert about(runs)["gemmd.kernel"]

    upload = named(spans, "gemmd.Upload")[0]
    (moved,) = [one for one in spans if one.parent_span_id == upload.span_id]
    assert moved.name == "transfer" and about(moved)["gemmd.bytes"] == 256 * 256 * 4

    failed = named(spans, "gemmd.FindBuffer")[0]
    assert failed.status.code == pb.Status.STATUS_CODE_ERROR and "nobody" in failed.status.message
    assert about(failed)["gemmd.code"] == "NOT_FOUND"
    ids = [one.span_id for one in spans]
    assert len(set(ids)) == len(ids)
    end = time.monotonic() + 60
    while daemon.count("gemmd_spans_sent_total") < len(spans):  # they count once the answer is there
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_callers_trace_decides_for_itself(collector, start):
    collector.start()
    daemon = start("sample: 1")
    call(daemon.target, f"00-{TRACE}-{PARENT}-00")
    call(daemon.target, f"00-{TRACE}-{PARENT}-01")
    with gemmd.connect(daemon.target) as client:
        client.devices()  # without a trace
    spans = collector.until(all_of("gemmd.GetServerInfo", "gemmd.ListDevices"))
    (info,) = named(spans, "gemmd.GetServerInfo")
    assert info.trace_id.hex() == TRACE and info.parent_span_id.hex() == PARENT


def test_a_share_of_nothing_sends_sampled_traces_alone(collector, start):
    collector.start()
    daemon = start("sample: 0")
    with gemmd.connect(daemon.target) as client:
        for _ in range(20):
            client.devices()
    call(daemon.target, f"00-{TRACE}-{PARENT}-01")
    spans = collector.until(lambda spans: named(spans, "gemmd.GetServerInfo"))
    assert [one.name for one in spans] == ["gemmd.GetServerInfo"]


def test_what_is_left_is_sent_at_the_end(collector, start):
    collector.start()

    def sent():
        daemon = start()
        with gemmd.connect(daemon.target) as client:
            client.devices()
        assert daemon.end() == 0
        return not collector.requests.empty()

    assert any(sent() for _ in range(5))  # the end has a second for it, which a busy machine may miss
    collector.until(lambda spans: named(spans, "gemmd.ListDevices"))


def test_calls_do_not_wait_for_a_collector_that_hangs_and_what_has_no_room_is_counted(
    collector, start
):
    collector.held.clear()
    collector.start()
    daemon = start()
    with gemmd.connect(daemon.target) as client:
        end = time.monotonic() + 240
        while daemon.count("gemmd_spans_dropped_total") == 0:
            assert time.monotonic() < end
            for _ in range(1000):
                client.health()
                client.devices()
        assert daemon.count("gemmd_spans_sent_total") == 0
        assert collector.requests.empty()
        collector.held.set()
        collector.until(lambda spans: len(spans) > 1000, 60)
    assert daemon.end() == 0


def test_a_collector_that_is_not_there_is_told_of_once_and_costs_no_call(collector, start):
    daemon = start()
    with gemmd.connect(daemon.target) as client:
        for _ in range(20):
            client.devices()
        end = time.monotonic() + 60
        while daemon.said("otlp_failed") == 0:
            assert time.monotonic() < end
            time.sleep(0.02)
        collector.start()
        with contextlib.suppress(gemmd.Error):
            client.devices()
        collector.until(lambda spans: named(spans, "gemmd.ListDevices"))
    assert daemon.said("otlp_failed") == 1
    assert daemon.end() == 0


def test_what_the_collector_refuses_is_counted(collector, start):
    collector.refusal = grpc.StatusCode.PERMISSION_DENIED
    collector.start()
    daemon = start()
    with gemmd.connect(daemon.target) as client:
        client.devices()
        end = time.monotonic() + 60
        while daemon.count("gemmd_spans_failed_total") == 0:
            assert time.monotonic() < end
            time.sleep(0.02)
    assert daemon.count("gemmd_spans_sent_total") == 0


def test_a_batch_of_a_queue_is_a_span_of_its_own(collector, start):
    collector.start()
    daemon = start()
    with gemmd.connect(daemon.target) as client, client.session(shared_memory="off") as session:
        target = session.create_buffer(shape=(8, 8), dtype="f4")
        with session.queue() as stream:
            stream.submit([gemmd.fill(target, 1)]).result(20)
            with pytest.raises(gemmd.InvalidArgument):
                stream.submit([gemmd.matmul(target, target, target)]).result(20)
    spans = collector.until(lambda spans: len(named(spans, "gemmd.batch")) == 2)
    ran, refused = named(spans, "gemmd.batch")
    assert ran.kind == pb.Span.SPAN_KIND_SERVER and not ran.parent_span_id
    assert about(ran)["gemmd.sequence"] < about(refused)["gemmd.sequence"]
    assert about(ran)["gemmd.code"] == "OK" and about(ran)["rpc.method"] == "Queue"
    assert about(ran)["gemmd.tenant"] == "vision" and about(ran)["gemmd.request"]
    parts = [one for one in spans if one.parent_span_id == ran.span_id]
    assert [one.name for one in parts] == ["queue", "device"]
    assert ran.start_time_unix_nano <= ran.end_time_unix_nano
    assert refused.status.code == pb.Status.STATUS_CODE_ERROR and refused.status.message
    assert about(refused)["gemmd.code"] == "INVALID_ARGUMENT"
    assert not [one for one in spans if one.parent_span_id == refused.span_id]  # it never ran


@pytest.mark.parametrize("flag, batches", [("01", 2), ("00", 0)])
def test_a_streams_trace_decides_for_its_batches(collector, start, flag, batches):
    collector.start()
    daemon = start("sample: 1")
    with gemmd.connect(daemon.target) as client, client.session(shared_memory="off") as session:
        plan = session.plan([gemmd.fill(session.create_buffer(shape=(8,), dtype="f4"), 1)])
        run = compute_pb.PlanRun(plan_id=plan.plan_id)
        messages = [
            compute_pb.QueueRequest(open=compute_pb.QueueOpen(session_id=session.session_id))
        ]
        for sequence in (1, 2):
            batch = compute_pb.Batch(sequence=sequence, plan=run)
            messages.append(compute_pb.QueueRequest(batch=batch))
        with grpc.insecure_channel(daemon.target) as channel:
            stream = channel.stream_stream("/gemmd.v1.ComputeService/Queue")
            sent = [message.SerializeToString() for message in messages]
            answers = list(
                stream(iter(sent), metadata=[("traceparent", f"00-{TRACE}-{PARENT}-{flag}")])
            )
        assert len(answers) >= 2  # opened, and the completions of both
    sampled = ["gemmd.batch", "gemmd.Queue"] if batches else []
    spans = collector.until(all_of("gemmd.CloseSession", *sampled))
    found = named(spans, "gemmd.batch")
    assert [about(one)["gemmd.sequence"] for one in found] == list(range(1, batches + 1))
    whole = named(spans, "gemmd.Queue")
    assert len(whole) == (batches > 0)
    for one in found:
        assert one.trace_id.hex() == TRACE and one.parent_span_id == whole[0].span_id


def test_a_run_of_an_armed_plan_is_a_span_of_its_own(collector, start):
    collector.start()
    daemon = start()
    with gemmd.connect(daemon.target) as client, client.session() as session:
        target = session.create_buffer(shape=(8, 8), dtype="f4")
        with session.plan([gemmd.fill(target, 1)]) as plan, plan.arm() as armed:
            for _ in range(2):
                armed.run(20)
    spans = collector.until(lambda spans: len(named(spans, "gemmd.armed_run")) == 2)
    runs = named(spans, "gemmd.armed_run")
    assert len(runs) == 2 and runs[0].trace_id != runs[1].trace_id
    for run in runs:
        assert not run.parent_span_id
        assert about(run)["gemmd.code"] == "OK" and about(run)["gemmd.tenant"] == "vision"
        assert "gemmd.slot" in about(run) and "rpc.method" not in about(run)
        parts = [one for one in spans if one.parent_span_id == run.span_id]
        assert [one.name for one in parts] == ["queue", "device"]
        assert about(parts[1])["gemmd.device"] == "cpu:0" and about(parts[1])["gemmd.ops"] == 1
