"""What a person sees: repr of everything public, and reports in gemmctl's words."""

import asyncio
import re

import numpy as np

import gemmd
import gemmd.aio
from gemmd.report import OpReport

from .conftest import QUICK

REPORT = gemmd.Report(
    "cpu:0", 35.1e-6, 900e-6,
    (
        OpReport("quantize", "cpu_quantize", "only", 76e-6, 0.0, 329_840.0),
        OpReport("matmul", "cpu_any_panel", "model", 677.8e-6, 33_890_000.0, 264_342.0),
        OpReport("read", "", "unspecified", 0.0, 0.0, 0.0),
    ),
)  # fmt: skip


def test_a_report_is_printed_as_gemmctl_prints_it():
    assert str(REPORT).splitlines() == [
        "on cpu:0",
        "quantize   76.0 us, 4.34 GB/s; cpu_quantize, the only one",
        "matmul     677.8 us, 0.050 TFLOP/s, 0.39 GB/s; cpu_any_panel, the cost model's best",
        "read       0 s, 0.00 GB/s",
        "queued     35.1 us, on the device 900.0 us",
    ]
    assert repr(REPORT) == "Report(cpu_any_panel, 900.0 us on cpu:0, 3 ops, by call)"


def test_a_transfer_is_printed_as_gemmctl_prints_it():
    moved = gemmd.Transfer(512 << 10, 1.64e-3, "grpc", "too small")
    assert str(moved) == "512.00 KiB by grpc in 1.64 ms, 0.32 GB/s"
    cut = gemmd.Transfer(3 << 30, 2.0, "grpc", resumed=1)
    assert str(cut) == "3.00 GiB by grpc in 2.000 s, 1.61 GB/s, resumed 1 time"


def test_a_report_is_always_there_and_false_where_there_is_nothing_to_tell(session):
    buffer = session.upload(np.ones((4, 4), "f4"))
    got = buffer.download()
    assert not got.report and got.report.kernel == "" and got.report.tflops == 0
    assert "no report" in str(got.report) and got.transfer
    y = session.matmul(got, got)
    assert y.report and not (y + 1).report and not y[0].report
    assert not y.transfer and str(y.transfer) == "nothing was moved"
    assert not session.create_buffer(64).transfer


# By name: what it looks like, a pattern.
PLACE = r"unix:\S+"
WANTED = {
    "client": rf"Client\({PLACE}\)",
    "session": rf"Session\(s-\d+ on cpu:0 of {PLACE}\)",
    "buffer": r"Buffer\(float32\[4, 8\] on cpu:0\)",
    "published": r'Buffer "w/1"\(float32\[4, 8\] on cpu:0\)',
    "bytes": r"Buffer\(64 B on cpu:0\)",
    "tensor": r"Tensor\(float32\[8, 4\], strides=\(1, 8\)\)",
    "operand": r"Operand\(float8_e4m3fn\[4, 8\], scales PER_ROW\)",
    "op": r"Op\(fill\)",
    "plan": r'Plan "step"\(fill, read on cpu:0\)',
    "long": r"Plan\(9 ops: fill, fill, fill, fill, fill, fill, .. on cpu:0\)",
    "prepared": r"Prepared\(fill, read\)",
    "queue": r"Queue\(\d+ batches in flight at most, on cpu:0\)",
    "result": r"Result\(\[float32\[4, 8\]\], [\d.]+ .?s on cpu:0\)",
}


def test_everything_has_a_repr_that_tells_what_it_is(client, session):
    with session.queue() as queue:
        buffer = session.create_buffer(shape=(4, 8), dtype="f32")
        published = session.create_buffer(shape=(4, 8), dtype="f32").publish("w/1")
        ops = [gemmd.fill(buffer, 1), gemmd.read(buffer)]
        shown = {
            "client": client, "session": session, "buffer": buffer, "published": published,
            "bytes": session.create_buffer(64), "tensor": buffer.T, "op": ops[0], "queue": queue,
            "operand": session.operand((4, 8), gemmd.Granularity.PER_ROW),
            "plan": session.plan(ops, "step"), "long": session.plan([ops[0]] * 9),
            "prepared": session.prepare(ops), "result": session.execute(ops),
        }  # fmt: skip
        for name, thing in shown.items():
            assert re.fullmatch(WANTED[name], repr(thing)), repr(thing)
    session.close()
    assert repr(session).endswith(", closed)") and repr(queue).endswith(", closed)")
    layer = gemmd.SharedArray((4, 8))
    assert repr(layer) == "SharedArray(float32[4, 8])"


def test_replicas_tell_how_many_serve(fake):
    with gemmd.Replicas([fake.target], lambda session: session, retry=QUICK) as replicas:
        assert re.fullmatch(rf"Replicas\(1 serving, of {PLACE}\)", repr(replicas))


def test_asyncio_shows_the_same(fake):
    async def work():
        async with (
            gemmd.aio.Client(fake.target, retry=QUICK) as client,
            client.session() as session,
            session.queue() as queue,
        ):
            buffer = await session.create_buffer(shape=(4, 8), dtype="f32")
            ops = [gemmd.fill(buffer, 1), gemmd.read(buffer)]
            shown = {
                "client": client, "session": session, "buffer": buffer, "queue": queue,
                "plan": await session.plan(ops, "step"), "prepared": session.prepare(ops),
            }  # fmt: skip
            for name, thing in shown.items():
                assert re.fullmatch(WANTED[name], repr(thing)), repr(thing)
            layer = await gemmd.aio.Linear.create(session, np.ones((4, 8), "f4"), name="shown")
            assert repr(layer) == 'Linear "shown"(8 -> 4, float8_e4m3fn, not called yet, asyncio)'

    asyncio.run(work())
