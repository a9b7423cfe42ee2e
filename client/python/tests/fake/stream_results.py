"""Where the results of calls by streams are, and until when. Run by on_fake_gpu.py."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import gemmd
from gemmd import errors
from gemmd._layers import local, places, results

from .gpu import FakeTensor, from_dlpack, layer_on_fake_gpu


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
