"""gemmd: multiply matrices on a GEMM compute server.

>>> import numpy as np, gemmd
>>> with gemmd.Client("unix:/run/gemmd/gemmd.sock") as client, client.session() as session:
...     d = session.matmul(np.ones((4, 8), "f4"), np.ones((8, 3), "f4"))
...     print(d.shape, d.report.kernel)

`gemmd.aio` has the same nouns for asyncio.
"""

from gemmd import split as split  # Linear(split=..) is made there
from gemmd._layers.adopt import Adopted, adopt
from gemmd._ops.narrowing import PrecisionWarning
from gemmd._version import __version__ as __version__
from gemmd.armed import Armed, ArmedReport
from gemmd.buffer import Buffer
from gemmd.client import Client, connect
from gemmd.compiled import Compiled, compile
from gemmd.device_array import DeviceArray
from gemmd.dtypes import (
    as_dtype,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    int8,
    int32,
)
from gemmd.errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from gemmd.grouped import choose, combine, grouped_matmul, k_grouped_matmul, route
from gemmd.linear import Linear
from gemmd.loads import Loaded
from gemmd.mlp import MLP
from gemmd.moe import MoE
from gemmd.norms import normalize
from gemmd.ops import (
    Gate,
    Granularity,
    Op,
    Operand,
    convert,
    copy,
    fill,
    gated,
    matmul,
    quantize,
    read,
    write,
)
from gemmd.plan import Plan
from gemmd.queue import Queue
from gemmd.replicas import Replicas
from gemmd.report import OpReport, Report, Transfer
from gemmd.result import Array, Result
from gemmd.retry import Retry
from gemmd.sequential import Sequential
from gemmd.session import Session
from gemmd.share import SharedArray
from gemmd.tensor import Tensor
from gemmd.tls import Tls
from gemmd.work import Prepared


def __dir__() -> list[str]:
    """For completion: what is public, without the modules that it comes from."""
    return sorted([*__all__, "__all__", "__doc__", "__version__", "aio"])


__all__ = [
    "Aborted", "Adopted", "AlreadyExists", "Armed", "ArmedReport", "Array", "Buffer", "Cancelled",
    "Client", "Compiled", "DataLoss", "DeadlineExceeded", "DeviceArray", "Error", "FailedPrecondition",
    "Gate", "Granularity", "Internal", "InvalidArgument", "Linear", "Loaded", "MLP", "MoE",
    "NotFound", "Op", "OpReport", "Operand", "OutOfRange", "PermissionDenied", "Plan",
    "PrecisionWarning", "Prepared", "Queue", "Replicas", "Report", "ResourceExhausted",
    "Result", "Retry", "Sequential", "Session", "SharedArray", "Tensor", "Tls", "Transfer",
    "Unauthenticated", "Unavailable", "Unimplemented", "adopt", "as_dtype", "bfloat16", "choose",
    "combine", "compile", "connect", "convert", "copy", "fill", "float16", "float32",
    "float8_e4m3fn", "float8_e5m2", "gated",
    "grouped_matmul", "int32", "int8", "k_grouped_matmul", "matmul", "normalize", "quantize",
    "read", "route", "write",
]  # fmt: skip
