"""A server whose devices and sessions stay as they are, for pictures of them."""

import os
from concurrent import futures

import grpc
from gemmd.v1 import buffer_service_pb2 as buffer_pb
from gemmd.v1 import device_service_pb2 as pb
from gemmd.v1 import session_service_pb2 as session_pb

GIB = 1 << 30


def info():
    return pb.ServerInfo(
        version="0.1.0", instance_id="a524c8c4938c9943", tenant="vision", under_mps=True,
        start_time={"seconds": 1700000000},
        limits=pb.Limits(
            max_sessions=64, max_buffers=4096, max_buffer_bytes=64 * GIB, max_queued_programs=256,
            max_message_bytes=64 << 20,
        ),
    )  # fmt: skip


def gpu(number, state=pb.Device.STATE_SERVING):
    return pb.Device(
        name=f"cuda:{number}", model="NVIDIA H200", architecture="sm_90a", state=state,
        gpu_uuid=f"GPU-5c3f12a{number}", numa_node=number, memory_bytes=139 * GIB,
        used_bytes=(number + 1) * 17 * GIB, buffers=310, queued_programs=12,
        queued_device_seconds=0.00321, busy_seconds=1234.5, programs=98765,
        sensors=pb.DeviceSensors(
            clock_mhz=1980, power_watts=512.0, power_limit_watts=700.0, temperature_celsius=61.0
        ),
    )  # fmt: skip


def sessions():
    return [
        session_pb.SessionInfo(
            name=f"s-{number}", label=label, device=f"cuda:{number % 2}", queued_programs=number,
            buffers=12, buffer_bytes=3 * GIB, plans=4, device_seconds=10.0,
            peer=f"unix:uid=1000,pid={4000 + number}",
        )
        for number, label in enumerate(["trainer", "a label of somebody who likes them long", ""])
    ]  # fmt: skip


METHODS = {
    "DeviceService/GetServerInfo": lambda: info(),
    "DeviceService/ListDevices": lambda: pb.ListDevicesResponse(
        devices=[gpu(0), gpu(1, pb.Device.STATE_FENCED)]
    ),
    "DeviceService/ListKernels": lambda: pb.ListKernelsResponse(
        kernels=[
            pb.Kernel(name=f"sm90_fp8_{name}", device=f"cuda:{device}")
            for device in (0, 1)
            for name in ("128x128", "128x256", "gate")
        ]
    ),
    "BufferService/ListPublished": lambda: buffer_pb.ListPublishedResponse(
        buffers=[
            buffer_pb.Buffer(published_name=name)
            for name in ("model/w1", "model/w2", "other", "$(touch hacked)", "two words")
        ]
    ),
    "SessionService/ListSessions": lambda: session_pb.ListSessionsResponse(sessions=sessions()),
}


class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        answer = METHODS.get(details.method.removeprefix("/gemmd.v1."))
        if answer is None:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda *_: answer().SerializeToString())


def serve():
    """Starts one; the server, and its address, which is always as long."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Handlers(),))
    target = f"unix-abstract:gemmd-screens-{os.getpid():07}"
    server.add_insecure_port(target)
    server.start()
    return server, target
