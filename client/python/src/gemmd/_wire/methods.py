"""Full names of the RPCs, and which of them do no harm when sent twice."""

EXECUTE = "/gemmd.v1.ComputeService/Execute"
QUEUE = "/gemmd.v1.ComputeService/Queue"
CREATE_PLAN = "/gemmd.v1.ComputeService/CreatePlan"
RUN_PLAN = "/gemmd.v1.ComputeService/RunPlan"
DELETE_PLAN = "/gemmd.v1.ComputeService/DeletePlan"
EXPLAIN = "/gemmd.v1.ComputeService/Explain"

GET_REGION = "/gemmd.v1.ArmedService/GetArmedRegion"
ARM = "/gemmd.v1.ArmedService/ArmPlan"
DISARM = "/gemmd.v1.ArmedService/DisarmPlan"

CREATE_BUFFER = "/gemmd.v1.BufferService/CreateBuffer"
GET_BUFFER = "/gemmd.v1.BufferService/GetBuffer"
LIST_BUFFERS = "/gemmd.v1.BufferService/ListBuffers"
DELETE_BUFFERS = "/gemmd.v1.BufferService/DeleteBuffers"
PUBLISH = "/gemmd.v1.BufferService/PublishBuffer"
FIND = "/gemmd.v1.BufferService/FindBuffer"
UNPUBLISH = "/gemmd.v1.BufferService/UnpublishBuffer"
LIST_PUBLISHED = "/gemmd.v1.BufferService/ListPublished"
SWITCH_VERSION = "/gemmd.v1.BufferService/SwitchVersion"
UPLOAD = "/gemmd.v1.BufferService/Upload"
DOWNLOAD = "/gemmd.v1.BufferService/Download"
EXPORT = "/gemmd.v1.BufferService/ExportBuffer"
IMPORT = "/gemmd.v1.BufferService/ImportBuffer"

OPEN_SESSION = "/gemmd.v1.SessionService/OpenSession"
KEEP_ALIVE = "/gemmd.v1.SessionService/KeepAlive"
CLOSE_SESSION = "/gemmd.v1.SessionService/CloseSession"
HOLD = "/gemmd.v1.SessionService/Hold"
LIST_SESSIONS = "/gemmd.v1.SessionService/ListSessions"

SERVER_INFO = "/gemmd.v1.DeviceService/GetServerInfo"
LIST_DEVICES = "/gemmd.v1.DeviceService/ListDevices"
LIST_KERNELS = "/gemmd.v1.DeviceService/ListKernels"

GET_LOG = "/gemmd.v1.AdminService/GetLog"
SET_LOG = "/gemmd.v1.AdminService/SetLog"
END_SESSION = "/gemmd.v1.AdminService/EndSession"

HEALTH = "/grpc.health.v1.Health/Check"

# Execute and RunPlan are safe because every one carries an op_id: the server runs it once and
# answers twice.
SAFE_TO_REPEAT = frozenset(
    {EXECUTE, RUN_PLAN, EXPLAIN, GET_BUFFER, LIST_BUFFERS, KEEP_ALIVE, LIST_SESSIONS,
     LIST_PUBLISHED, SWITCH_VERSION, SERVER_INFO, LIST_DEVICES, LIST_KERNELS, GET_LOG, GET_REGION,
     SET_LOG, HEALTH}
)  # fmt: skip
