"""What a layer does while a stream is captured, and in the graph. Run by on_fake_gpu.py."""

from __future__ import annotations

import ctypes

import numpy as np

import gemmd
from gemmd import errors
from gemmd._layers import graphs, memory, results, seats

from .gpu import FakeTensor, FakeTorch, from_dlpack, layer_on_fake_gpu


def test_a_capture_takes_what_is_warm_and_keeps_it() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        x = FakeTensor(np.ones((2, 40), "f4"))
        linear(x)
        torch.streams[0].settle()
        torch.now, torch.capturing = 1, True
        driver, stream = torch.streams[1].driver, ctypes.c_void_p(torch.streams[1].handle)
        driver.FakeCudaCapture(stream, True)
        y = linear(x)
        driver.FakeCudaCapture(stream, False)
        assert torch.streams[1].waited == []
        try:
            linear(FakeTensor(np.ones((3, 40), "f4")))
        except errors.FailedPrecondition as error:
            assert "call it once with that many first" in str(error)
        else:
            raise AssertionError("a cold capture was accepted")
        torch.capturing = False
        for value in (2, 3, 4):
            x.array[...] = value
            driver.FakeCudaReplay(stream)
            torch.streams[1].settle()
            np.testing.assert_array_equal(y.array, x.array)
        seats.MAX_SEATS, torch.now = 3, 0
        kept = [FakeTensor(np.ones((m, 40), "f4")) for m in (4, 8, 16, 24)]
        kept += [linear(one) for one in kept]  # no allocator knows that the stream still needs them
        torch.streams[0].settle()
        x.array[...] = 9
        driver.FakeCudaReplay(stream)  # its slot was not given to another
        torch.streams[1].settle()
        np.testing.assert_array_equal(y.array, x.array)
        assert len(server.arming.armed) == 3 + 1 + 1
        seats.MAX_SEATS = 64


def test_a_graph_reads_x_and_writes_its_result_where_they_are() -> None:
    w = np.eye(40, dtype="f4")
    graphs.LEAST_LENT_BYTES = 1
    for works in (True, False):
        from_dlpack.works = works
        with layer_on_fake_gpu(w) as (torch, server, linear):
            x = FakeTorch.empty((2, 40), "torch.float32", "cuda:0")
            x.array[...] = 1
            kept = linear(x)
            torch.streams[0].settle()
            before, lent = len(server.plans), len(linear.session._lent)
            buffers = len(linear.session.buffers())
            torch.now, torch.capturing = 1, True
            driver, stream = torch.streams[1].driver, ctypes.c_void_p(torch.streams[1].handle)
            driver.FakeCudaCapture(stream, True)
            results = [linear(x), linear(x)]
            driver.FakeCudaCapture(stream, False)
            torch.capturing = False
            io = linear._local._captured[0].memory.io.buffer_id
            programs = [list(ops) for ops in server.plans.values()][before:]
            assert len(programs) == 1 + 2 * works  # that which copies, and one for each call
            for ops in programs[1:]:
                product = ops[-1].matmul
                assert product.d.buffer_id != io and product.a.values.buffer_id != io
            assert len(linear.session._lent) == lent  # none of the graph's memory is kept
            for value in (2, 3):
                x.array[...] = value
                driver.FakeCudaReplay(stream)
                torch.streams[1].settle()
                for y in results:
                    np.testing.assert_array_equal(y.array, x.array)
            assert len(linear.session.buffers()) == buffers + 2 + 4 * works
            for _ in range(3):  # each is the end of the graph before
                torch.capturing = True
                driver.FakeCudaCapture(stream, True)
                y = linear(x)
                driver.FakeCudaCapture(stream, False)
                torch.capturing = False
                driver.FakeCudaReplay(stream)
                torch.streams[1].settle()
                np.testing.assert_array_equal(y.array, x.array)
                assert len(linear.session.buffers()) == buffers + 2 + 2 * works
                assert len(server.plans) == before + 1 + works
            torch.now, kept = 0, None
            linear.close()
            assert not server.arming.armed and not server.plans
    from_dlpack.works, graphs.LEAST_LENT_BYTES = True, (512 << 10) + 1


def test_graphs_beyond_some_copy() -> None:
    w = np.eye(40, dtype="f4")
    graphs.MOST_OF_A_LAYER, most = 2, graphs.MOST_OF_A_LAYER
    with layer_on_fake_gpu(w) as (torch, server, linear):
        x = FakeTensor(np.ones((2, 40), "f4"))
        kept = linear(x)
        torch.streams[0].settle()
        before = len(server.plans)
        torch.now, torch.capturing = 1, True
        driver, stream = torch.streams[1].driver, ctypes.c_void_p(torch.streams[1].handle)
        driver.FakeCudaCapture(stream, True)
        results = [linear(x) for _ in range(4)]
        driver.FakeCudaCapture(stream, False)
        torch.capturing = False
        assert len(server.plans) == before + 1 + 2
        x.array[...] = 5
        driver.FakeCudaReplay(stream)
        torch.streams[1].settle()
        for y in results:
            np.testing.assert_array_equal(y.array, x.array)
        torch.now, kept = 0, None
    graphs.MOST_OF_A_LAYER = most


def test_layers_have_their_memory_in_common_and_graphs_their_own() -> None:
    w = np.eye(40, dtype="f4")
    memory.LEAST_BYTES, results.MAX_OWN_BYTES, results.MAX_SHARED_BYTES = 1 << 10, 0, 0
    with layer_on_fake_gpu(w) as (torch, server, first):
        layers = [first, *(gemmd.Linear(first.session, w * n, quantize=None) for n in (2, 3))]
        buffers = server.machine.memory
        before = len(buffers)

        def check(rows: int, stream: int) -> None:
            torch.now = stream
            x = FakeTensor(np.full((rows, 40), rows, "f4"))
            ys = [layer(x) for layer in layers]
            for n, y in enumerate(ys, 1):
                torch.streams[stream].settle()
                np.testing.assert_array_equal(y.array, n * x.array)

        check(64, 0)
        check(60, 0)
        assert len(buffers) == before + 2
        plans = len(server.plans)
        check(128, 0)
        assert (len(buffers), len(server.plans)) == (before + 4, plans + 1)
        check(64, 0)
        assert len(server.plans) == plans + 1  # that of 64 is where it was
        torch.now, torch.capturing = 1, True
        driver, stream = torch.streams[1].driver, ctypes.c_void_p(torch.streams[1].handle)
        x = FakeTensor(np.full((64, 40), 7, "f4"))
        driver.FakeCudaCapture(stream, True)
        y = layers[1](x)
        driver.FakeCudaCapture(stream, False)
        torch.capturing = False
        assert len(buffers) == before + 6 + 1  # the result, in memory of the graph
        driver.FakeCudaReplay(stream)
        check(64, 0)  # beside it
        torch.streams[1].settle()
        np.testing.assert_array_equal(y.array, 2 * x.array)
        for one in layers:
            one.close()
        assert not server.arming.armed and not server.plans
        assert len(buffers) == before - 3  # the weights
    memory.LEAST_BYTES, results.MAX_OWN_BYTES, results.MAX_SHARED_BYTES = 8 << 20, 4 << 20, 1 << 30
