"""Full names of the RPCs, and which of them do no harm when sent twice, as the proto files have it.

`methods.LIST_KERNELS` is "/gemmd.v1.DeviceService/ListKernels".
"""

import re
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from gemmd.v1 import admin_service_pb2 as admin_pb
from gemmd.v1 import armed_service_pb2 as armed_pb
from gemmd.v1 import buffer_service_pb2 as buffer_pb
from gemmd.v1 import compute_service_pb2 as compute_pb
from gemmd.v1 import device_service_pb2 as device_pb
from gemmd.v1 import session_service_pb2 as session_pb

# Descriptors by full name.
RPCS: dict[str, Any] = {
    f"/{service.full_name}/{rpc.name}": rpc
    for file in (admin_pb, armed_pb, buffer_pb, compute_pb, device_pb, session_pb)
    for service in file.DESCRIPTOR.services_by_name.values()
    for rpc in service.methods
}
_BY_REQUEST = {rpc.input_type.full_name: path for path, rpc in RPCS.items()}
_BY_NAME = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "_", rpc.name).upper(): path for path, rpc in RPCS.items()
}


def of(request: type[Message]) -> str:
    """Of the RPC that takes such a request."""
    return _BY_REQUEST[request.DESCRIPTOR.full_name]


def __getattr__(name: str) -> str:
    try:
        return _BY_NAME[name]
    except KeyError:
        raise AttributeError(f"there is no RPC {name}") from None


EXECUTE = of(compute_pb.ExecuteRequest)
RUN_PLAN = of(compute_pb.RunPlanRequest)
HEALTH = "/grpc.health.v1.Health/Check"

# Execute and RunPlan are safe because every one carries an op_id: the server runs it once and
# answers twice.
SAFE_TO_REPEAT = frozenset({EXECUTE, RUN_PLAN, HEALTH}) | frozenset(
    path
    for path, rpc in RPCS.items()
    if rpc.GetOptions().idempotency_level == descriptor_pb2.MethodOptions.IDEMPOTENT
)
