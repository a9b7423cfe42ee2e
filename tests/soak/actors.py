"""Who lives in a soak. An actor does one round of its work; what it raises should not have failed."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time

import gemmd
import grpc
import numpy as np
from gemmd.v1 import buffer_service_pb2 as buffer_pb
from gemmd.v1 import device_service_pb2 as device_pb
from gemmd.v1 import session_service_pb2 as session_pb

from secured import Secured

DOWNLOAD = "/gemmd.v1.BufferService/Download"
INFO = "/gemmd.v1.DeviceService/GetServerInfo"
OPEN = "/gemmd.v1.SessionService/OpenSession"
CLOSE = "/gemmd.v1.SessionService/CloseSession"


class Steady:
    """The worker whose calls must never fail: products that are checked, a plan, a queue."""

    def __init__(self, daemon: Secured, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._client = gemmd.Client(daemon.target("worker"))
        self._session = self._client.session(label="steady")
        self._session.__enter__()
        self._weight = self._random.standard_normal((64, 96), dtype=np.float32)
        self._resident = self._session.upload(self._weight)

    def round(self) -> None:
        x = self._random.standard_normal((8, 96), dtype=np.float32)
        y = self._session.matmul(x, self._resident.T)
        np.testing.assert_allclose(y, x @ self._weight.T, rtol=1e-3, atol=1e-3)
        with self._session.queue() as queue:
            futures = [queue.submit([gemmd.read(self._resident)]) for _ in range(20)]
            for future in futures:
                assert future.result() is not None
        buffer = self._session.upload(x)
        np.testing.assert_array_equal(buffer.download(), x)
        buffer.delete()

    def close(self) -> None:
        self._session.__exit__(None, None, None)
        self._client.close()


class Newcomer:
    """Connects anew each round, by mTLS, while certificates rotate."""

    def __init__(self, daemon: Secured) -> None:
        self._daemon = daemon

    def round(self) -> None:
        with self._daemon.channel() as channel:
            info = channel.unary_unary(
                INFO, device_pb.GetServerInfoRequest.SerializeToString, device_pb.ServerInfo.FromString
            )(device_pb.GetServerInfoRequest(), timeout=60)
            assert info.tenant == "worker", info
            opened = channel.unary_unary(
                OPEN,
                session_pb.OpenSessionRequest.SerializeToString,
                session_pb.OpenSessionResponse.FromString,
            )(session_pb.OpenSessionRequest(label="newcomer"), timeout=60)
            channel.unary_unary(CLOSE, session_pb.CloseSessionRequest.SerializeToString)(
                session_pb.CloseSessionRequest(session_id=opened.session_id), timeout=60
            )

    def close(self) -> None:
        pass


class Churner:
    """Sessions, buffers, plans and names that come and go."""

    def __init__(self, daemon: Secured) -> None:
        self._client = gemmd.Client(daemon.target("noise"))
        self._number = 0

    def round(self) -> None:
        self._number += 1
        for _ in range(5):
            with self._client.session(label=f"churn {self._number}", hold=False) as session:
                d = session.create_buffer(shape=(32, 32), dtype="f32")
                with session.plan([gemmd.fill(d, 1), gemmd.read(d)]) as plan:
                    plan.run()
                d.publish(f"churn/{self._number}")
                session.find(f"churn/{self._number}")
                session.unpublish(f"churn/{self._number}")
                with contextlib.suppress(gemmd.InvalidArgument):
                    session.execute([])
                with contextlib.suppress(gemmd.ResourceExhausted):
                    session.create_buffer(1 << 30)

    def close(self) -> None:
        self._client.close()


class Crasher:
    """Clients that own much, are in the middle of something, and are killed."""

    def __init__(self, daemon: Secured, program: str) -> None:
        self._command = [program, daemon.target("noise")]

    def round(self) -> None:
        doomed = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert doomed.stdout is not None and doomed.stderr is not None
            ready = doomed.stdout.readline()
            if ready != b"ready\n":
                refused = doomed.stderr.read()
                # Those who crashed before still hold their share: a busy machine notices late.
                assert b"BUFFER_BYTES_LIMIT" in refused, refused
        finally:
            doomed.kill()
            doomed.communicate()

    def close(self) -> None:
        pass


class SlowReader:
    """Asks for much and reads little of it, then goes away."""

    def __init__(self, daemon: Secured) -> None:
        self._client = gemmd.Client(daemon.target("noise"))
        self._target = daemon.target("noise")

    def round(self) -> None:
        with self._client.session(label="slow") as session:
            try:
                buffer = session.create_buffer(48 << 20)
            except gemmd.errors.ResourceExhausted:
                return  # to those who crashed, which a busy machine notices late
            request = buffer_pb.DownloadRequest(
                session_id=session.session_id, buffer_id=buffer.buffer_id
            )
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(self._target, options) as channel:
                chunks = channel.unary_stream(DOWNLOAD, buffer_pb.DownloadRequest.SerializeToString)(
                    request
                )
                next(chunks)
                time.sleep(1)
                chunks.cancel()
            ops = [gemmd.read(gemmd.Tensor(buffer.buffer_id, "f32", (1 << 16,)))]
            queue = session.queue()
            for _ in range(8):
                queue.submit(ops)
            time.sleep(0.2)
            with contextlib.suppress(gemmd.Error):
                queue.close()

    def close(self) -> None:
        self._client.close()


class Canceller:
    """Deadlines that come too soon and calls that are cancelled at any moment."""

    def __init__(self, daemon: Secured) -> None:
        self._client = gemmd.Client(daemon.target("noise"))
        self._session = self._client.session(label="cancel")
        self._session.__enter__()
        self._d = self._session.create_buffer(shape=(256, 256), dtype="f32")
        self._e = self._session.create_buffer(shape=(256, 256), dtype="f32")
        self._random = np.random.default_rng(7)

    def round(self) -> None:
        ops = [gemmd.fill(self._d, 1), gemmd.matmul(self._d, self._d, self._e), gemmd.read(self._e)]
        for _ in range(20):
            with contextlib.suppress(gemmd.DeadlineExceeded, gemmd.Cancelled):
                self._session.execute(ops, timeout_s=float(self._random.uniform(1e-4, 2e-3)))

    def close(self) -> None:
        self._session.__exit__(None, None, None)
        self._client.close()


class Operator:
    """Reloads, right and wrong ones, and rotates certificates as it should be done."""

    # The watch of a second, and room for a busy machine.
    WATCH_S = 3.0

    def __init__(self, daemon: Secured, stop: threading.Event) -> None:
        self._daemon = daemon
        self._stop = stop
        self._rounds = 0

    def round(self) -> None:
        self._rounds += 1
        self._daemon.reload(weight=1 + self._rounds % 3)
        self._stop.wait(0.5)
        self._daemon.reload(extra="nonsense {")
        self._stop.wait(0.5)
        self._daemon.reload(extra='listeners { address: "127.0.0.1:0" }')  # may not change
        self._stop.wait(0.5)
        self._daemon.reload()
        self._daemon.rotate_server()
        if self._rounds % 2 == 0 and not self._stop.is_set():
            self._daemon.rotate_clients(self.WATCH_S)
        self._stop.wait(1)

    def close(self) -> None:
        pass
