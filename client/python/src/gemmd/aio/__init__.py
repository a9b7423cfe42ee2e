"""gemmd for asyncio: the same nouns, awaited.

>>> import asyncio, numpy as np, gemmd.aio
>>> async def main():
...     async with gemmd.aio.Client("unix:/run/gemmd/gemmd.sock") as client, client.session() as
session: ...         d = await session.matmul(np.ones((4, 8), "f4"), np.ones((8, 3), "f4"))
...         print(d.shape, d.report.kernel)
>>> asyncio.run(main())

Ops, tensors, errors and results are those of `gemmd`.
"""

from gemmd.aio.buffer import Buffer
from gemmd.aio.client import Client, connect
from gemmd.aio.layers import MLP, Linear, MoE, Sequential
from gemmd.aio.plan import Plan
from gemmd.aio.queue import Queue
from gemmd.aio.replicas import Replicas
from gemmd.aio.session import Session
from gemmd.aio.work import Prepared

__all__ = [
    "MLP", "Buffer", "Client", "Linear", "MoE", "Plan", "Prepared", "Queue", "Replicas",
    "Sequential", "Session", "connect",
]  # fmt: skip
