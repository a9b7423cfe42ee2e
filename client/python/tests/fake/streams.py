"""What a layer does with streams, without a GPU (gpu.py). Run as a program, with the driver's folder in
LD_LIBRARY_PATH, by test_streams.py.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from types import SimpleNamespace

import numpy as np

import gemmd
from gemmd import errors
from gemmd._layers import graphs, local, memory, places, results, seats

from .gpu import FakeTensor, FakeTorch, from_dlpack, layer_on_fake_gpu


def test_calls_follow_one_another_and_the_host_waits_for_none() -> None:
    random = np.random.default_rng()
    w = random.standard_normal((24, 40), "f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        inputs = [random.standard_normal((m, 40), "f4") for m in (3, 5, 3, 3, 5)]
        outputs = [linear(FakeTensor(x)) for x in inputs]
        torch.streams[0].settle()
        for x, y in zip(inputs, outputs, strict=True):
            np.testing.assert_allclose(y.array, x @ w.T, rtol=1e-4, atol=1e-4)
        calls = len(server.calls)
        turned = FakeTensor(random.standard_normal((40, 3), "f4").T)
        y = linear(turned)  # not dense
        torch.streams[0].settle()
        np.testing.assert_allclose(y.array, turned.array @ w.T, rtol=1e-4, atol=1e-4)
        assert len(server.calls) == calls


def test_another_stream_has_other_memory() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        xs = [FakeTensor(np.full((2, 40), value, "f4")) for value in (1, 2, 3, 4)]
        ys = []
        for i, x in enumerate(xs):
            torch.now = i % 2
            ys.append(linear(x))
        for stream in torch.streams:
            stream.settle()
            assert stream.waited == []
        for x, y in zip(xs, ys, strict=True):
            np.testing.assert_array_equal(y.array, x.array)
        linear.close()
        assert not server.machine.memory


def test_streams_beyond_the_lanes_go_behind_one_another() -> None:
    w = np.eye(40, dtype="f4")
    memory.MAX_LANES = 1
    with layer_on_fake_gpu(w) as (torch, _, linear):
        x = FakeTensor(np.ones((2, 40), "f4"))
        linear(x)
        torch.now = 1
        y = linear(x)
        linear(x)
        assert torch.streams[1].waited == [torch.streams[0]]
        torch.streams[1].settle()
        np.testing.assert_array_equal(y.array, x.array)
    memory.MAX_LANES = 4


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


def test_results_are_written_where_they_stay_unless_too_many_are_kept() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        inputs = [FakeTensor(np.full((2, 40), value, "f4")) for value in range(6)]
        kept = [linear(x) for x in inputs]
        torch.streams[0].settle()
        for value, y in enumerate(kept):
            np.testing.assert_array_equal(y.array, np.full((2, 40), value, "f4"))
        assert len({y.data_ptr() for y in kept}) == 6
        assert len(server.arming.armed) == 1 + places.MAX_RESULTS
        del y, kept[1]
        again = linear(inputs[5])
        torch.streams[0].settle()
        np.testing.assert_array_equal(again.array, np.full((2, 40), 5, "f4"))
        np.testing.assert_array_equal(kept[1].array, np.full((2, 40), 2, "f4"))
        linear.close()
        np.testing.assert_array_equal(kept[0].array, np.zeros((2, 40), "f4"))  # still the caller's
        assert not server.arming.armed and not server.plans


def test_the_first_results_are_copied() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        places.COPIED_FIRST = 5
        for turn in range(8):
            x = FakeTensor(np.full((2, 40), turn, "f4"))
            y = linear(x)
            torch.streams[0].settle()
            np.testing.assert_array_equal(y.array, x.array)
            assert len(server.arming.armed) == 1 + (turn >= 5)
            del y


def test_results_are_copied_where_memory_cannot_be_handed_over() -> None:
    w = np.eye(40, dtype="f4")
    from_dlpack.works = False
    with layer_on_fake_gpu(w) as (torch, server, linear):
        for value in range(3):
            x = FakeTensor(np.full((2, 40), value, "f4"))
            y = linear(x)
            torch.streams[0].settle()
            np.testing.assert_array_equal(y.array, np.full((2, 40), value, "f4"))
        assert len(server.arming.armed) == 1
    from_dlpack.works = True


def test_the_error_of_a_run_is_the_next_calls() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        x = FakeTensor(np.ones((2, 40), "f4"))
        linear(x)
        torch.streams[0].settle()
        plans, server.plans = server.plans, {}
        linear(x)
        torch.streams[0].settle()
        server.plans = plans
        try:
            linear(x)
        except gemmd.NotFound:
            pass
        else:
            raise AssertionError("nobody was told")
        y = linear(x)
        torch.streams[0].settle()
        np.testing.assert_array_equal(y.array, x.array)


def test_row_counts_have_plans_in_common() -> None:
    random = np.random.default_rng()
    w = random.standard_normal((24, 40), "f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        counts = list(range(17, 33)) * 2
        xs = [FakeTensor(random.standard_normal((m, 40), "f4")) for m in counts]
        for x in xs:
            y = linear(x)
            torch.streams[0].settle()
            assert y.shape == (len(x.array), 24)
            np.testing.assert_allclose(y.array, x.array @ w.T, rtol=1e-4, atol=1e-4)
            del y
        # One of 24 rows and one of 32, each with the result that the last call has let go of.
        assert len(server.arming.armed) == 4


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


def test_large_results_are_in_memory_of_the_session() -> None:
    w = np.eye(40, dtype="f4")
    results.MAX_OWN_BYTES = 0
    with layer_on_fake_gpu(w) as (torch, server, first):
        layers = [first, *(gemmd.Linear(first.session, w * n, quantize=None) for n in (2, 3, 4))]
        shared = first._neighbours.results
        before = len(server.machine.memory)

        def called(layer: gemmd.Linear, n: int, value: int, stream: int = 0) -> FakeTensor:
            torch.now = stream
            y = layer(FakeTensor(np.full((2, 40), value, "f4")))
            torch.streams[stream].settle()
            np.testing.assert_array_equal(y.array, np.full((2, 40), n * value, "f4"))
            return y

        def pass_through(value: int) -> FakeTensor:
            """As a model does: what a layer gave is gone when the next one but one is called."""
            y = None
            for n, layer in enumerate(layers, 1):
                y = called(layer, n, value)
            return y

        for value in range(4):
            pass_through(value)
        kept = list(shared._kept)
        assert len(kept) == 2 and sum(one.seats for one in kept) <= 8
        armed = len(server.arming.armed)
        for value in range(4):
            pass_through(value)
        assert (list(shared._kept), len(server.arming.armed)) == (kept, armed)  # nothing is made anew

        last = pass_through(7)
        for value in range(3):
            pass_through(value)
        np.testing.assert_array_equal(last.array, np.full((2, 40), 28, "f4"))
        made = len(shared._kept)
        called(first, 1, 5, stream=1)  # none of those: the other stream may still read them
        assert len(shared._kept) == made + 1 and shared._kept[-1].stream == torch.streams[1].handle

        torch.now = 0
        other = gemmd.Linear(first.session, w * 5, quantize=None)
        for one in kept:  # a caller has resized them: they are nobody's to write to
            one._at += 1
        y = other(FakeTensor(np.full((2, 40), 1, "f4")))
        torch.streams[0].settle()
        assert all(y.storage is not one._storage for one in kept)
        del y
        other.close()
        for one in kept:
            one._at -= 1

        results.MAX_SHARED_BYTES = 320 * len(shared._kept)
        held = [called(first, 1, value) for value in range(12)]
        assert len(shared._kept) == made + 1
        for value, y in enumerate(held):
            np.testing.assert_array_equal(y.array, np.full((2, 40), value, "f4"))
        del held, y
        # Calls of other rows get memory when the layers have not used theirs for long.
        local.LONG_UNUSED = 8
        for value in range(40):
            for n, layer in enumerate(layers, 1):
                y = layer(FakeTensor(np.full((1, 40), value, "f4")))
                torch.streams[0].settle()
                np.testing.assert_array_equal(y.array, np.full((1, 40), n * value, "f4"))
                del y
        assert any(one.kind[1][0] == 1 for one in shared._kept)
        assert sum(one.buffer.size_bytes for one in shared._kept) <= results.MAX_SHARED_BYTES
        local.LONG_UNUSED = 256
        for layer in layers:
            layer.close()
        assert not shared._kept and not server.arming.armed and not server.plans
        assert len(server.machine.memory) == before - 4  # the weights
        np.testing.assert_array_equal(last.array, np.full((2, 40), 28, "f4"))
    results.MAX_OWN_BYTES, results.MAX_SHARED_BYTES = 4 << 20, 1 << 30


def test_a_call_that_fails_leaves_its_result_to_the_next() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        x = FakeTensor(np.full((2, 40), 3, "f4"))
        for _ in range(3):
            linear(x)
        (call,) = linear._local._gpu_calls.values()
        (result,) = call.results
        armed = result.seat.armed

        def refuse(*_: object) -> None:
            raise errors.Unavailable("gone", reason="GONE")

        for ask in (linear, linear.run):
            result.seat.armed = SimpleNamespace(slot=SimpleNamespace(call_on=refuse), slot_index=0)
            try:
                ask(x)
            except errors.Unavailable:
                result.seat.armed = armed
            else:
                raise AssertionError("it was rung")
            y = ask(x)
            torch.streams[0].settle()
            assert y.storage is result.memory._storage
            del y


def test_a_session_that_is_dropped_with_its_layers_goes_at_once() -> None:
    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, server, linear):
        with gemmd.Client(server.target) as client:
            session = client.session()
            layers = [gemmd.Linear(session, w, quantize=None) for _ in range(2)]
            x = FakeTensor(np.ones((2, 40), "f4"))
            for layer_ in layers:
                layer_(x)
            torch.streams[0].settle()
            gone = weakref.ref(session)
            gc.disable()
            del session, layers, layer_
            assert gone() is None
            gc.enable()


def test_calls_of_another_variant_have_a_slot_of_their_own() -> None:
    """Of a layer whose calls differ in more than rows and type, as a mixture's do in top_k."""

    class Varied(gemmd.Linear):
        variant = 0

    w = np.eye(40, dtype="f4")
    with layer_on_fake_gpu(w) as (torch, _, linear):
        linear.__class__ = Varied
        x = FakeTensor(np.ones((2, 40), "f4"))
        for Varied.variant in (0, 1, 0):
            linear.run(x)
        torch.streams[0].settle()
        assert len(linear._local._gpu_calls) == 2


def test_a_plan_serves_layers_whose_weights_are_as_many_buffers() -> None:
    one, two, three = (SimpleNamespace(buffer_id=name) for name in (b"1", b"2", b"3"))
    plan = memory.SharedPlan(SimpleNamespace(), (one, one, two))
    assert plan.serves((three, three, one)) and plan.serves((one, one, one))
    assert not plan.serves((one, three, two))


def main() -> int:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
