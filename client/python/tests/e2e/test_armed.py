"""Armed plans and the layers that use them, on a real daemon."""

import asyncio
import threading

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd import native

from ..numerics import relative_error

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(native.why_not()), reason=native.why_not()),
]


def shared(session, shape):
    return session.create_buffer(shape=shape, dtype="f32", memory_kind="host_shared")


def test_many_runs_each_on_its_own_data(session, random):
    w = random.standard_normal((8, 16), "f4")
    x, y = shared(session, (4, 16)), shared(session, (4, 8))
    with session.plan([gemmd.matmul(x, session.upload(w), y)]).arm() as armed:
        # A GPU's report is written behind the word that ends the wait.
        late = 1 if x.device.startswith("cuda") else 0
        for count in range(1, 2001):
            x.array()[...] = count
            assert count - late <= armed.run(30).run <= count
            wanted = np.broadcast_to(count * w.sum(1), (4, 8))
            np.testing.assert_allclose(y.array(), wanted, rtol=1e-4, atol=1e-4 * count)


def test_a_buffer_that_is_deleted_fails_the_next_run(session):
    x, y = shared(session, (4, 4)), shared(session, (4, 4))
    w = session.upload(np.eye(4, dtype="f4"))
    with session.plan([gemmd.matmul(x, w, y)]).arm() as armed:
        armed.run(30)
        w.delete()
        with pytest.raises(gemmd.Error, match="BUFFER_GONE"):
            armed.run(30)


def test_a_plan_that_reads_cannot_be_armed(session):
    x = session.create_buffer(shape=(4, 4), dtype="f32")
    with pytest.raises(gemmd.InvalidArgument):
        session.plan([gemmd.read(x)]).arm()


def test_an_armed_layer_gives_the_bits_of_a_call(client, random):
    w = random.standard_normal((200, 300), "f4")
    x = random.standard_normal((33, 300), "f4").astype(gemmd.bfloat16)
    results = []
    for way, path in (("auto", "armed"), ("off", "call")):
        with client.session(shared_memory=way) as session, gemmd.Linear(session, w) as layer:
            results.append(layer(x))
            assert results[-1].report.path == path
            assert ("armed" in repr(layer)) == (path == "armed")
    np.testing.assert_array_equal(*(np.asarray(one).view(np.uint8) for one in results))


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_an_fp8_mlp_is_near_and_an_unquantised_one_is_exact(session, random, layout):
    gate, up = (random.standard_normal((256, 300), "f4") / 17 for _ in range(2))
    down = random.standard_normal((200, 256), "f4") / 16
    both = np.concatenate([gate, up])
    if layout == "interleaved":
        both = np.stack([gate, up], 1).reshape(512, 300)
    x = random.standard_normal((5, 300), "f4")
    g = x.astype(np.float64) @ gate.T
    exact = (g / (1 + np.exp(-g)) * (x @ up.T.astype(np.float64))) @ down.T
    with gemmd.MLP(session, both, down, layout=layout) as mlp:
        assert 0.005 < relative_error(mlp(x), exact) < 0.12
        assert mlp(x).report.path == "armed"
    with gemmd.MLP(session, both, down, layout=layout, quantize=None) as mlp:
        assert relative_error(mlp(x), exact) < 1e-5


def test_layers_one_behind_the_other_are_one_program(session, random):
    w1, w2 = random.standard_normal((512, 300), "f4") / 17, random.standard_normal((200, 512), "f4") / 22
    b1, b2 = random.standard_normal(512, "f4"), random.standard_normal(200, "f4")
    x = random.standard_normal((5, 300), "f4")
    exact = np.maximum(x.astype(np.float64) @ w1.T + b1, 0) @ w2.T + b2
    for quantize, bound in (("fp8-block", 0.08), ("fp8-row", 0.08), (None, 1e-5)):
        fc1 = gemmd.Linear(session, w1, bias=b1, activation="relu", quantize=quantize)
        fc2 = gemmd.Linear(session, w2, bias=b2, quantize=quantize)
        with gemmd.Sequential(fc1, fc2) as both:
            y = both(x)
            assert y.report.path == "armed"
            assert relative_error(y, exact) < bound
            if quantize == "fp8-block":  # one by one it is rounded otherwise in between
                assert relative_error(y, fc2(fc1(x))) < 0.02
            else:
                np.testing.assert_array_equal(y, fc2(fc1(x)))


def test_threads_call_a_layer_side_by_side(session, random):
    w = random.standard_normal((64, 128), "f4")
    layer = gemmd.Linear(session, w, quantize=None)
    wrong = []

    def work(seed):
        numbers = np.random.default_rng(seed)
        for _ in range(50):
            x = numbers.standard_normal((1 + seed, 128), "f4")
            if relative_error(layer(x), x.astype(np.float64) @ w.T) > 1e-5:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_asyncio_runs_several_at_once(address, random):
    w = random.standard_normal((8, 16), "f4")

    async def main():
        async with gemmd.aio.Client(address) as client, client.session() as session:
            weight = await session.upload(w)

            async def one(value):
                x, y = [
                    await session.create_buffer(
                        shape=(4, width), dtype="f32", memory_kind="host_shared"
                    )
                    for width in (16, 8)
                ]
                plan = await session.plan([gemmd.matmul(x, weight, y)])
                (await x.array())[...] = value
                async with await plan.arm() as armed:
                    for _ in range(20):
                        await armed.run(30)
                return (await y.array())[0].copy()

            return await asyncio.gather(*(one(value) for value in range(5)))

    for value, got in enumerate(asyncio.run(main())):
        np.testing.assert_allclose(got, value * w.sum(1), rtol=1e-4, atol=1e-3)
