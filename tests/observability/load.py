"""Mixed load on a daemon until told to stop: what works, what is refused, what is wrong."""

from __future__ import annotations

import contextlib
import threading

import gemmd
import grpc
import numpy as np
from gemmd.v1 import device_service_pb2 as pb

from daemon import TOKEN, Daemon

INFO = "/gemmd.v1.DeviceService/GetServerInfo"


def _computes(daemon: Daemon, stop: threading.Event) -> None:
    """Every dtype and priority, plans, a queue, transfers by every way."""
    random = np.random.default_rng(1)
    with gemmd.Client(daemon.target("team-a")) as client:
        while not stop.is_set():
            for device in ("cpu:0", "cpu:1"):
                with client.session(device=device) as session:
                    _one_session(session, random, stop)


def _one_session(session, random, stop: threading.Event) -> None:
    n = 96
    x = random.standard_normal((n, n), dtype=np.float32)
    d = session.create_buffer(shape=(n, n), dtype="f32")
    operands = {"f32": session.upload(x)}
    for dtype in ("bf16", "f16"):
        operands[dtype] = session.create_buffer(shape=(n, n), dtype=dtype)
        session.execute([gemmd.convert(operands["f32"], operands[dtype])])
    operands["i8"] = session.upload(random.integers(-9, 9, (n, n), np.int8))
    operands["e4m3"] = session.operand((n, n), gemmd.Granularity.BLOCK_1X128)
    session.execute([gemmd.quantize(operands["f32"], operands["e4m3"])])
    for priority in ("high", "normal", "low"):
        for operand in operands.values():
            ops = [gemmd.matmul(operand, operand, d), gemmd.read(d)]
            session.execute(ops, priority=priority)
    with session.plan([gemmd.matmul(operands["f32"], operands["f32"], d)]) as plan:
        plan.run()
    data = np.zeros(3 << 20, np.int8)
    session.upload(data).download()
    with session.queue() as queue:
        while not stop.wait(0.02):
            for _ in range(20):
                queue.submit([gemmd.fill(d, 1), gemmd.write(d, x)])
            if queue.submit([gemmd.read(d)]).result() is not None and random.random() < 0.05:
                break


def _transfers_over_grpc(daemon: Daemon, stop: threading.Event) -> None:
    data = np.ones(2 << 20, np.int8)
    with (
        gemmd.Client(daemon.target("team-a")) as client,
        client.session(shared_memory="off") as session,
    ):
        buffer = session.upload(data)
        while not stop.wait(0.02):
            buffer.upload(data)
            buffer.download()


def _is_refused(daemon: Daemon, stop: threading.Event) -> None:
    with gemmd.Client(daemon.target("team-b")) as client, client.session() as session:
        kept = [session.create_buffer(4096) for _ in range(4)]
        while not stop.wait(0.02):
            with contextlib.suppress(gemmd.ResourceExhausted):
                session.create_buffer(4096)
            with contextlib.suppress(gemmd.InvalidArgument):
                session.execute([])
            with contextlib.suppress(gemmd.NotFound):
                session.find("nobody/has/this")
            session.execute([gemmd.fill(gemmd.Tensor(kept[0].buffer_id, "f32", (1024,)), 1)])


def _is_turned_away(daemon: Daemon, stop: threading.Event) -> None:
    credentials = grpc.ssl_channel_credentials(daemon.authority())
    with grpc.secure_channel(daemon.tls_address, credentials) as channel:
        call = channel.unary_unary(INFO, pb.GetServerInfoRequest.SerializeToString)
        while not stop.wait(0.02):
            call(pb.GetServerInfoRequest(), metadata=[("authorization", f"Bearer {TOKEN}")])
            for metadata in ([], [("authorization", f"Bearer {TOKEN[::-1]}")]):
                with contextlib.suppress(grpc.RpcError):
                    call(pb.GetServerInfoRequest(), metadata=metadata)


def _reloads(daemon: Daemon, stop: threading.Event) -> None:
    while True:
        for extra, notice_ms in (("", 60), ("nonsense", 50), ("", 50)):
            daemon.reload(extra, notice_ms)
            if stop.wait(0.5):
                return


PARTS = (_computes, _transfers_over_grpc, _is_refused, _is_turned_away, _reloads)


@contextlib.contextmanager
def mixed_load(daemon: Daemon):
    """All of it for as long as the block lasts; what should work and does not fails the test."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def run(part):
        try:
            part(daemon, stop)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=[part], name=part.__name__) for part in PARTS]
    for thread in threads:
        thread.start()
    try:
        yield failed
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not failed, failed
