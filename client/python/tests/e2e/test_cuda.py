"""Device memory shared with a daemon on this machine's GPU. Skips without torch or a GPU."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import gemmd

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("shared_gpu")]

try:
    import torch
except ImportError:
    torch = None

DTYPES = ["float32", "bfloat16", "float16", "float8_e4m3fn"]


def numbers(shape, dtype, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    values = torch.randn(shape, generator=generator, device="cuda")
    return values.to(getattr(torch, dtype))


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).cpu().numpy()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_is_read_and_written_where_it_lies(session, dtype):
    x = numbers((64, 96), dtype)
    tensor = session.from_dlpack(x)
    assert tensor.owner.memory_kind == "device_imported"
    got = session.execute([gemmd.read(tensor)])[0]
    np.testing.assert_array_equal(got.view(np.uint8), bits(x))
    if dtype != "float8_e4m3fn":
        session.execute([gemmd.fill(tensor, 3)])
        assert (x.float() == 3).all()
    before = bits(x)
    tensor.owner.delete()
    np.testing.assert_array_equal(bits(x), before)  # torch's own, as it was


def test_views_keep_offset_and_strides(session):
    x = numbers((40, 64), "float32")
    part = x[3:23:2, 5:37]
    tensor = session.from_dlpack(part)
    assert tensor.strides == (128, 1) and tensor.offset_bytes % 4 == 0
    np.testing.assert_array_equal(session.execute([gemmd.read(tensor)])[0], part.cpu().numpy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_shared_buffer_is_a_torch_tensor(session, dtype):
    buffer = session.create_buffer(shape=(32, 48), dtype=dtype, memory_kind="device_shared")
    tensor = buffer.torch()
    assert tensor.is_cuda and tensor.dtype == getattr(torch, dtype)
    assert not bits(tensor).any()
    x = numbers((32, 48), dtype)
    tensor.copy_(x)
    torch.cuda.current_stream().synchronize()
    np.testing.assert_array_equal(buffer.download().view(np.uint8), bits(x))
    other = torch.from_dlpack(buffer) if dtype != "float8_e4m3fn" else buffer.torch()
    np.testing.assert_array_equal(bits(other), bits(x))
    del tensor, other
    buffer.delete()


def test_a_gigabyte_takes_no_memory_of_the_servers(client, session):
    x = torch.ones((256, 1 << 20), device="cuda")
    used = [one.used_bytes for one in client.devices()]
    tensor = session.from_dlpack(x)
    assert tensor.owner.size_bytes >= 1 << 30 and not tensor.owner.transfer
    assert [one.used_bytes for one in client.devices()] == used
    assert session.execute([gemmd.read(tensor[255, (1 << 20) - 4 :])])[0].tolist() == [1] * 4


def test_work_on_another_stream_is_waited_for(session):
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # 0.1 s and more
        x.fill_(5)
        event.record()
    tensor = session.from_dlpack(x, ready=event)
    assert (session.execute([gemmd.read(tensor)])[0] == 5).all()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        x.fill_(6)
        again = session.from_dlpack(x)  # the current stream is that one
    assert (session.execute([gemmd.read(again)])[0] == 6).all()


def test_a_tensor_lives_until_the_server_has_let_go(session):
    x = torch.full((4 << 20,), 7.0, device="cuda")
    tensor = session.from_dlpack(x)
    address = x.data_ptr()
    del x
    y = torch.empty(4 << 20, device="cuda")
    assert y.data_ptr() != address
    assert (session.execute([gemmd.read(tensor[:1000])])[0] == 7).all()
    tensor.owner.delete()


def test_many_tensors_of_one_allocation_come_and_go(session):
    x = numbers((64, 1024), "float32")
    rows = [session.from_dlpack(x[i]) for i in range(64)]
    for i in (0, 63):
        got = session.execute([gemmd.read(rows[i])])[0]
        np.testing.assert_array_equal(got, x[i].cpu().numpy())
    session.delete_buffers([row.owner for row in rows[:63]])
    got = session.execute([gemmd.read(rows[63])])[0]
    np.testing.assert_array_equal(got, x[63].cpu().numpy())


def test_an_import_is_not_published_and_not_exported(session):
    tensor = session.from_dlpack(numbers((8, 8), "float32"))
    with pytest.raises(gemmd.FailedPrecondition, match="copy it"):
        tensor.owner.publish("cuda/import")
    with pytest.raises(gemmd.FailedPrecondition, match="device_shared"):
        tensor.owner.torch()


EXPANDABLE = """
import sys, torch, gemmd
with gemmd.Client(sys.argv[1]) as client, client.session() as session:
    x = torch.ones(1 << 20, device="cuda")
    try:
        session.from_dlpack(x)
        print("no refusal")
    except gemmd.FailedPrecondition as error:
        print(error)
    small = [torch.ones(1 << 18, device="cuda") for _ in range(6)]  # across two pieces, or in one
    for one in small:
        try:
            session.from_dlpack(one)
            print("no refusal")
        except gemmd.FailedPrecondition as error:
            print(error)
    half = torch.full((512, 512), 0.5, device="cuda")
    layers = [gemmd.Linear(session, torch.ones((256, 256), device="cuda")),
              gemmd.MLP(session, torch.cat([half, half]), half)]
    print(layers[0].why_not_on_gpu(0), "|")
    for layer in layers:
        x = torch.ones((2, layer.in_features), device="cuda")
        eager = [float(layer(x)[0, 0]) for _ in range(4)][-1]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layer(x)
        graph.replay()
        print(eager, float(y[0, 0]))
"""


def test_expandable_segments_are_refused_by_name_and_linear_does_without(address):
    done = subprocess.run(
        [sys.executable, "-c", EXPANDABLE, address], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *refusals, why, linear, mlp = done.stdout.strip().splitlines()
    assert len(refusals) == 7 and all("expandable_segments:False" in one for one in refusals)
    assert why.strip() == "|"  # the GPU copies results: calls do not go through the host
    assert [float(one) for one in linear.split()] == pytest.approx([256, 256], rel=1e-2)
    # silu(256) * 256, times 0.5, 512 times
    assert [float(one) for one in mlp.split()] == pytest.approx([2**24, 2**24], rel=1e-2)


DYING = """
import sys, time, torch, gemmd
session = gemmd.Client(sys.argv[1]).session(grace_s=0.1)
x = torch.ones(8 << 20, device="cuda")
w = session.from_dlpack(x)
print(session.name, flush=True)
while True:
    session.execute([gemmd.fill(w, 1)])
"""


def test_an_owner_that_is_killed_takes_nothing_down(client, session, address):
    before = [one.used_bytes for one in client.devices()]
    child = subprocess.Popen(
        [sys.executable, "-c", DYING, address], stdout=subprocess.PIPE, text=True
    )
    try:
        name = child.stdout.readline().strip()
        time.sleep(0.2)
    finally:
        child.kill()
        child.wait()
    end = time.monotonic() + 60
    while name in [one.name for one in client.sessions()] and time.monotonic() < end:
        time.sleep(0.02)
    assert name not in [one.name for one in client.sessions()]
    d = session.create_buffer(shape=(64, 64), dtype="f32")
    session.execute([gemmd.fill(d, 2)])
    assert (d.download() == 2).all()
    session.delete_buffers([d])
    assert [one.used_bytes for one in client.devices()] == before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("quantize", ["fp8-block", "fp8-row"])
def test_linear_on_tensors_is_near_and_stays_on_the_gpu(session, dtype, quantize):
    w, bias = numbers((512, 1024), "bfloat16", 1), numbers((512,), "float32", 2)
    layer = gemmd.Linear(session, w, bias=bias, quantize=quantize)
    assert layer.why_not_on_gpu(torch.cuda.current_device()) == ""
    for m in (1, 64, 1, 200):
        x = numbers((m, 1024), dtype, m)
        y = layer(x)
        exact = x.double() @ w.double().T + bias.double()
        assert (y.dtype, y.device, y.shape) == (x.dtype, x.device, (m, 512))
        assert 0.005 < float((y.double() - exact).norm() / exact.norm()) < 0.06
    np.testing.assert_allclose(
        layer(x.cpu().float().numpy()), layer(x.float()).cpu().numpy(), rtol=1e-5, atol=1e-4
    )


def test_linear_from_streams_and_threads_mixes_nothing_up(session):
    w = numbers((256, 512), "bfloat16", 1)
    layer = gemmd.Linear(session, w, out_dtype="f32")
    failures = []

    def work(which):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(30):
                x = numbers((1 + (which + i) % 5, 512), "bfloat16", 100 * which + i)
                y = layer(x)
                exact = x.double() @ w.double().T
                error = float((y.double() - exact).norm() / exact.norm())
                if not 0.005 < error < 0.06:
                    failures.append((which, i, error))

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures
