"""Connects full method names with the fake's functions, and turns Refused into a status."""

from __future__ import annotations

import grpc

from gemmd._wire import methods
from gemmd.v1 import admin_service_pb2 as adm
from gemmd.v1 import armed_service_pb2 as armed
from gemmd.v1 import buffer_service_pb2 as buf
from gemmd.v1 import compute_service_pb2 as comp
from gemmd.v1 import device_service_pb2 as dev
from gemmd.v1 import session_service_pb2 as ses

from .machine import Refused


def encode(message) -> bytes:
    return message.SerializeToString()


class Router(grpc.GenericRpcHandler):
    """One handler for every method of the four services."""

    def __init__(self, fake) -> None:
        self._fake = fake
        unary = {
            methods.OPEN_SESSION: (fake.open_session, ses.OpenSessionRequest),
            methods.KEEP_ALIVE: (fake.keep_alive, ses.KeepAliveRequest),
            methods.CLOSE_SESSION: (fake.close_session, ses.CloseSessionRequest),
            methods.GET_LOG: (lambda _: fake.log, adm.GetLogRequest),
            methods.SET_LOG: (fake.set_log, adm.SetLogRequest),
            methods.END_SESSION: (fake.end_session, adm.EndSessionRequest),
            methods.SERVER_INFO: (fake.server_info, dev.GetServerInfoRequest),
            methods.LIST_DEVICES: (fake.devices, dev.ListDevicesRequest),
            methods.CREATE_BUFFER: (fake.create_buffer, buf.CreateBufferRequest),
            methods.GET_BUFFER: (fake.get_buffer, buf.GetBufferRequest),
            methods.LIST_BUFFERS: (fake.list_buffers, buf.ListBuffersRequest),
            methods.DELETE_BUFFERS: (fake.delete_buffers, buf.DeleteBuffersRequest),
            methods.PUBLISH: (fake.publish, buf.PublishBufferRequest),
            methods.FIND: (fake.find, buf.FindBufferRequest),
            methods.UNPUBLISH: (fake.unpublish, buf.UnpublishBufferRequest),
            methods.EXPORT: (fake.export, buf.ExportBufferRequest),
            methods.IMPORT: (fake.import_, buf.ImportBufferRequest),
            methods.EXECUTE: (fake.execute, comp.ExecuteRequest),
            methods.CREATE_PLAN: (fake.create_plan, comp.CreatePlanRequest),
            methods.RUN_PLAN: (fake.run_plan, comp.RunPlanRequest),
            methods.DELETE_PLAN: (fake.delete_plan, comp.DeletePlanRequest),
            methods.EXPLAIN: (fake.explain, comp.ExplainRequest),
        }
        if fake.arming is not None:
            unary |= {
                methods.GET_REGION: (fake.arming.get_region, armed.GetArmedRegionRequest),
                methods.ARM: (fake.arming.arm, armed.ArmPlanRequest),
                methods.DISARM: (fake.arming.disarm, armed.DisarmPlanRequest),
            }
        self._unary = unary
        self._streams = {
            methods.HOLD: (grpc.unary_stream_rpc_method_handler, fake.hold, ses.HoldRequest),
            methods.UPLOAD: (grpc.stream_unary_rpc_method_handler, fake.upload, buf.UploadRequest),
            methods.DOWNLOAD: (
                grpc.unary_stream_rpc_method_handler, fake.download, buf.DownloadRequest,
            ),
            methods.QUEUE: (grpc.stream_stream_rpc_method_handler, fake.queue, comp.QueueRequest),
        }  # fmt: skip

    def service(self, details):
        name = details.method
        self._fake.metadata[name] = {key: value for key, value in details.invocation_metadata}
        if name == methods.HEALTH:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: self._fake.health)
        if name in self._unary:
            function, kind = self._unary[name]

            def answer(request, context):
                return self._guard(name, context, lambda: function(request), request)

            return grpc.unary_unary_rpc_method_handler(answer, kind.FromString, encode)
        make, function, kind = self._streams[name]

        def stream(request, context):
            self._fake.calls.append((name, None))
            return self._guard(name, context, lambda: function(request, context), None)

        def generate(request, context):
            self._fake.calls.append((name, None))
            try:
                yield from function(request, context)
            except Refused as refused:
                self._abort(context, refused)

        handler = stream if name == methods.UPLOAD else generate
        return make(handler, kind.FromString, encode)

    def _guard(self, name, context, work, request):
        faults = self._fake.faults
        if request is not None:
            self._fake.calls.append((name, request))
        try:
            if faults.statuses[name]:
                raise faults.statuses[name].pop(0)
            answer = work()
            if faults.after_running[name]:
                raise faults.after_running[name].pop(0)
            return answer
        except Refused as refused:
            self._abort(context, refused)

    @staticmethod
    def _abort(context, refused: Refused) -> None:
        words = [("gemmd-request-id", "r-7")]
        if refused.reason:
            words.append(("gemmd-reason", refused.reason))
        context.set_trailing_metadata(words)
        context.abort(grpc.StatusCode[refused.code], refused.message)
