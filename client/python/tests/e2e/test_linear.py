"""Linear on a real daemon: measured against numpy in float64, and shared by processes."""

import asyncio
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gemmd
import gemmd.aio

from ..numerics import relative_error

pytestmark = pytest.mark.e2e

WORKERS = Path(__file__).parents[4] / "examples" / "workers" / "workers.py"

# FP8 has 3 stored mantissa bits: two rounded factors differ from the exact product by about 4 %.
FP8 = (0.005, 0.06)


@pytest.fixture
def name(client):
    found = f"linear/{time.time_ns()}"
    yield found
    if found in [one.published_name for one in client.published()]:
        with client.session() as session:
            session.unpublish(found)


@pytest.mark.parametrize("way", ["auto", "off"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_an_fp8_layer_is_near_for_every_activation_type(client, random, dtype, way):
    kind = gemmd.as_dtype(dtype)
    w, bias = random.standard_normal((200, 300), "f4"), random.standard_normal(200, "f4")
    with client.session(shared_memory=way) as session, gemmd.Linear(session, w, bias=bias) as layer:
        for shape in [(1, 300), (2, 33, 300)]:
            x = random.standard_normal(shape, "f4").astype(kind)
            y = layer(x)
            exact = x.astype(np.float64) @ w.T.astype(np.float64) + bias
            assert (y.shape, y.dtype) == ((*shape[:-1], 200), kind)
            assert FP8[0] < relative_error(y, exact) < FP8[1]
            if y.report.path == "call":  # an armed run is reported as one
                ops = [op.op for op in y.report.ops]
                assert ops == ["write", "quantize", "matmul", "read"]


@pytest.mark.parametrize("way", ["auto", "off"])
def test_batches_beyond_a_message_are_multiplied_too(client, random, way):
    w = random.standard_normal((640, 1024), "f4")
    with client.session(shared_memory=way) as session:
        layer = gemmd.Linear(session, w, out_dtype="f32")
        for m in (1500, 3, 1500):
            x = random.standard_normal((m, 1024), "f4")
            exact = x.astype(np.float64) @ w.T.astype(np.float64)
            assert FP8[0] < relative_error(layer(x), exact) < FP8[1]


def test_an_unquantised_layer_is_as_exact_as_its_type(session, random):
    w = random.standard_normal((96, 160), "f4")
    x = random.standard_normal((17, 160), "f4")
    exact = np.maximum(x.astype(np.float64) @ w.T.astype(np.float64), 0)
    layer = gemmd.Linear(session, w, quantize=None, activation="relu")
    assert relative_error(layer(x), exact) < 1e-5
    half = gemmd.Linear(session, w.astype(gemmd.bfloat16), quantize=None, out_dtype="f32")
    rounded = x.astype(gemmd.bfloat16).astype(np.float64) @ w.astype(gemmd.bfloat16).T.astype("f8")
    assert relative_error(half(x), rounded) < 1e-5


def test_a_weight_that_comes_quantised_is_taken_as_it_is(session, random):
    values = (random.standard_normal((256, 384)) * 50).astype(gemmd.float8_e4m3fn)
    scales = random.uniform(0.5, 2, (2, 3)).astype("f4")
    layer = gemmd.Linear(session, values, scales=scales)
    w = values.astype(np.float64) * scales.repeat(128, 0).repeat(128, 1)
    x = random.standard_normal((5, 384), "f4")
    assert relative_error(layer(x), x @ w.T) < 0.04  # of x's rounding alone
    np.testing.assert_array_equal(layer.buffer.download().view(np.uint8), values.view(np.uint8))


WORKER = """
import json, sys
import numpy as np, gemmd
address, name = sys.argv[1:]
with gemmd.Client(address) as client, client.session() as session:
    layer = gemmd.Linear(session, lambda: np.load(sys.stdin.buffer), name=name)
    x = np.linspace(-1, 1, 4 * layer.in_features, dtype="f4").reshape(4, -1)
    y = [layer(x) for _ in range(20)][-1]
    print(json.dumps({"y": y.tolist()}))
"""


def test_processes_share_one_copy_of_a_named_weight(client, address, name, random):
    w = random.standard_normal((256, 1024), "f4")
    buffers = sum(one.buffers for one in client.devices())
    with client.session() as session, gemmd.Linear(session, w, name=name) as layer:
        x = np.linspace(-1, 1, 4 * 1024, dtype="f4").reshape(4, -1)
        here = layer(x)

        def work(_):
            done = subprocess.run(
                [sys.executable, "-c", WORKER, address, name], input=b"", capture_output=True,
                timeout=240,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr.decode()  # whoever loads finds no weight
            return np.array(json.loads(done.stdout)["y"])

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for y in pool.map(work, range(3)):
                np.testing.assert_array_equal(y, here)
        published = [one for one in client.published() if one.published_name == name]
        assert len(published) == 1 and published[0].size_bytes == layer.weights.size_bytes
        layer.unpublish()
    end = time.monotonic() + 60
    while sum(one.buffers for one in client.devices()) > buffers and time.monotonic() < end:
        time.sleep(0.02)
    assert sum(one.buffers for one in client.devices()) == buffers


def test_asyncio_calls_run_side_by_side(address, random):
    w = random.standard_normal((64, 128), "f4")
    inputs = [random.standard_normal((m, 128), "f4") for m in (1, 2, 3, 2, 1) for _ in range(4)]

    async def main():
        async with gemmd.aio.Client(address) as client, client.session() as session:
            layer = await gemmd.aio.Linear.create(session, w)
            results = await asyncio.gather(*(layer(x) for x in inputs))
            return results, await session.arming.why_not()

    results, why_not_armed = asyncio.run(main())
    for x, y in zip(inputs, results, strict=True):
        assert FP8[0] < relative_error(y, x @ w.T.astype(np.float64)) < FP8[1]
        assert y.report.path == ("call" if why_not_armed else "armed")


def test_asyncio_layers_give_the_bits_of_the_others(address, session, random):
    both, down = random.standard_normal((256, 128), "f4"), random.standard_normal((128, 128), "f4")
    x = random.standard_normal((3, 128), "f4")
    experts = random.standard_normal((4, 256, 128), "f4")
    downs = random.standard_normal((4, 128, 128), "f4")
    logits = random.standard_normal((3, 4), "f4")

    async def main():
        async with gemmd.aio.Client(address) as client, client.session() as session:
            mlp = await gemmd.aio.MLP.create(session, both, down, quantize=None)
            moe = await gemmd.aio.MoE.create(session, experts, downs, top_k=2)
            return await mlp(x), await moe.from_logits(x, logits)

    got = asyncio.run(main())
    with gemmd.MLP(session, both, down, quantize=None) as mlp:
        assert np.array_equal(got[0], mlp(x))
    with gemmd.MoE(session, experts, downs, top_k=2) as moe:
        assert np.array_equal(got[1], moe.from_logits(x, logits))


def test_the_workers_example_shares_one_weight(address):
    done = subprocess.run(
        [sys.executable, str(WORKERS), "--server", address, "--workers", "3", "--calls", "20"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "in 1 copy" in done.stdout and "everywhere: True" in done.stdout


def needs_no_gpu(client):
    if any(one.gpu_uuid for one in client.devices()):
        pytest.skip("the daemon has a GPU")


def test_a_cpu_device_shares_no_device_memory_and_says_what_it_shares(client, session):
    needs_no_gpu(client)
    with pytest.raises(gemmd.Unimplemented, match="host shared memory") as caught:
        session.create_buffer(64, memory_kind="device_shared")
    assert caught.value.reason == "NOT_SHARED"
    with pytest.raises(gemmd.InvalidArgument, match="ImportBuffer"):
        session.create_buffer(64, memory_kind="device_imported")
    assert len(session.buffers()) == 0


def test_device_memory_handed_to_a_cpu_device_is_refused(client, session):
    needs_no_gpu(client)
    from gemmd._memory import imports
    from gemmd._memory.dlpack import Memory
    from gemmd._wire import methods, requests
    from gemmd.v1 import buffer_service_pb2 as pb

    record = pb.CudaIpcMemory(
        handle=b"h" * 64, size_bytes=64, gpu_uuid="GPU-none", process="another"
    )
    memory = Memory(0, True, 0, np.dtype("f4"), (16,), (1,), None)
    token = imports.Import(record, memory, 0).offer(client.share_socket())
    request = requests.import_device(session.session_id, token, "")
    with pytest.raises(gemmd.Unimplemented, match="cannot map a GPU's memory"):
        session.transport.call(methods.IMPORT_BUFFER, request.SerializeToString())


@pytest.mark.parametrize("quantize", [None, "fp8-block"])
def test_by_grpc_a_plan_runs_in_other_memory_than_it_was_made_on(client, random, quantize):
    w = random.standard_normal((130, 257), "f4")
    with (
        client.session(shared_memory="off") as session,
        gemmd.Linear(session, w, quantize=quantize) as layer,
    ):
        for rows in (1, 3000, 1):  # the second takes larger memory, and the first's is deleted
            x = random.standard_normal((rows, 257), "f4")
            assert relative_error(layer(x), x @ w.T.astype("f8")) < (0.06 if quantize else 1e-5)


def test_another_weight_by_a_name_that_is_taken_is_refused(session):
    """A name that was copied from the layer before."""
    name, w = f"test/taken-{os.getpid()}", np.ones((8, 16), "f4")
    with gemmd.Linear(session, w, name=name) as layer:
        y = gemmd.Linear(session, 2 * w, name=name)(np.ones((1, 16), "f4"))
        assert abs(y[0, 0] - 16) < 0.01  # the one that is there
        held = len(session.buffers())
        for shape in ((9, 16), (8, 17)):
            wrong = np.ones(shape, "f4")
            with pytest.raises(gemmd.FailedPrecondition, match=r"\[8, 16\].*a name of its own"):
                gemmd.Linear(session, wrong, name=name)
        assert len(session.buffers()) == held
        layer.unpublish()
