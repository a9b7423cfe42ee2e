"""Sequential against the fake: layers one behind the other as one program."""

import asyncio

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd._wire import methods

from gemmd.ops import ACTIVATIONS

from ..conftest import QUICK
from ..numerics import relative_error


def matrix(random, n, k):
    return random.standard_normal((n, k), "f4") / k**0.5


def relu(x):
    return np.maximum(x, 0)


def test_one_call_is_both_layers(session, server, random):
    w1, w2, b1, b2 = matrix(random, 24, 40), matrix(random, 16, 24), *random.standard_normal((2, 24), "f4")
    b2 = b2[:16]
    fc1 = gemmd.Linear(session, w1, bias=b1, quantize=None, activation="relu")
    fc2 = gemmd.Linear(session, w2, bias=b2, quantize=None)
    with gemmd.Sequential(fc1, fc2) as both:
        for shape in [(40,), (3, 40), (2, 5, 40), (3, 40), (2, 0, 40)]:
            x = random.standard_normal(shape, "f4")
            y = both(x)
            assert y.shape == (*shape[:-1], 16)
            if y.size:
                wanted = relu(x.astype(np.float64) @ w1.T + b1) @ w2.T + b2
                assert relative_error(y, wanted) < 1e-5
                assert y.report.path in ("armed", "call")
        assert server.count(methods.CREATE_PLAN) == 3  # 1, 3 and 10 rows; none by the layers
        assert relative_error(fc1(x := matrix(random, 3, 40)), relu(x @ w1.T + b1)) < 1e-5
        assert repr(both).startswith("Sequential(Linear(40 -> 24, float32")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_results_between_layers_do_not_overwrite_what_is_read(session, random, count):
    sizes = [48, 16, 80, 32, 64, 8][: count + 1]
    weights = [matrix(random, n, k) for k, n in zip(sizes, sizes[1:], strict=False)]
    layers = [gemmd.Linear(session, w, quantize=None, activation="relu") for w in weights]
    chain = gemmd.Sequential(*layers)
    x = matrix(random, 9, 48)
    wanted = x.astype(np.float64)
    for w in weights:
        wanted = relu(wanted @ w.T)
    assert relative_error(chain(x), wanted) < 1e-5


@pytest.mark.parametrize("activation", ["none", "relu", "gelu_erf"])
def test_in_fp8_a_result_is_quantised_as_it_is_multiplied(session, server, random, activation):
    w1, b1, w2 = matrix(random, 256, 128), random.standard_normal(256, "f4"), matrix(random, 96, 256)
    fc1 = gemmd.Linear(session, w1, bias=b1, activation=activation)
    fc2 = gemmd.Linear(session, w2)
    x = matrix(random, 5, 128)
    y = gemmd.Sequential(fc1, fc2)(x)
    (plan,) = server.plans.values()
    first, second = (op.matmul for op in plan if op.HasField("matmul"))
    assert sum(op.HasField("quantize") for op in plan) == 1
    assert first.gate.alone and first.gate.activation == ACTIVATIONS[activation]
    assert first.HasField("bias") and first.d_scales == second.a.scales
    assert relative_error(y, fc2(fc1(x))) < 0.01  # which is rounded once more
    assert relative_error(y, fc2(fc1(x) * 0 + 1)) > 0.1


def test_in_fp8_behind_an_mlp_and_by_row_it_is_the_layers_one_by_one_to_the_bit(session, random):
    w = matrix(random, 256, 128)
    by_row = [gemmd.Linear(session, one, quantize="fp8-row") for one in (w, matrix(random, 64, 256))]
    x = matrix(random, 5, 128)
    assert np.array_equal(gemmd.Sequential(*by_row)(x), by_row[1](by_row[0](x)))
    mlp = gemmd.MLP(session, matrix(random, 512, 128), matrix(random, 96, 256))
    head = gemmd.Linear(session, matrix(random, 40, 96))
    assert np.array_equal(gemmd.Sequential(mlp, head)(x), head(mlp(x)))


def test_layers_of_a_sequential_are_those_of_the_new_one(session, random):
    fc1 = gemmd.Linear(session, matrix(random, 256, 128), activation="gelu_erf")
    mlp = gemmd.MLP(session, matrix(random, 512, 256), matrix(random, 96, 256))
    chain = gemmd.Sequential(fc1, mlp)
    x = matrix(random, 5, 128)
    nested = gemmd.Sequential(chain, gemmd.Linear(session, matrix(random, 64, 96)))
    assert [type(one).__name__ for one in nested.layers] == ["Linear", "MLP", "Linear"]
    assert np.array_equal(nested(x), nested.layers[-1](chain(x)))


def test_between_layers_numbers_are_of_the_type_that_the_next_one_takes(session, random):
    w1, w2 = matrix(random, 24, 40), matrix(random, 16, 24).astype(gemmd.float16)
    chain = gemmd.Sequential(
        gemmd.Linear(session, w1, quantize=None), gemmd.Linear(session, w2, quantize=None)
    )
    x = matrix(random, 4, 40)
    y = chain(x)
    assert y.dtype == gemmd.float16
    assert relative_error(y, (x @ w1.T) @ w2.T.astype("f4")) < 2e-3


def test_what_does_not_fit_is_refused(session, server, random):
    fc1 = gemmd.Linear(session, matrix(random, 24, 40), quantize=None)
    fc2 = gemmd.Linear(session, matrix(random, 16, 32), quantize=None)
    with pytest.raises(ValueError, match="no layer is given"):
        gemmd.Sequential()
    with pytest.raises(ValueError, match="gives 24 columns, .* takes 32"):
        gemmd.Sequential(fc1, fc2)
    for other in (None, matrix(random, 3, 24), gemmd.aio.Linear):
        with pytest.raises(TypeError, match="is no layer of a Sequential"):
            gemmd.Sequential(fc1, other)
    with gemmd.Client(server.target, retry=QUICK) as client, client.session() as another:
        there = gemmd.Linear(another, matrix(random, 16, 24), quantize=None)
        with pytest.raises(ValueError, match="two sessions"):
            gemmd.Sequential(fc1, there)


def test_closing_it_closes_its_layers_and_leaves_nothing(session, server, random):
    before = len(session.buffers())
    layers = [gemmd.Linear(session, matrix(random, 40, 40), quantize=None) for _ in range(2)]
    chain = gemmd.Sequential(*layers)
    x = matrix(random, 3, 40)
    chain(x), layers[0](x)
    chain.close()
    chain.close()
    assert len(session.buffers()) == before and not server.plans
    for one in (chain, *layers):
        with pytest.raises(gemmd.FailedPrecondition, match="closed"):
            one(x)


def test_one_whose_layer_was_closed_says_which(session, random):
    layers = [gemmd.Linear(session, matrix(random, 40, 40), quantize=None) for _ in range(2)]
    chain = gemmd.Sequential(*layers)
    layers[1].close()
    with pytest.raises(gemmd.FailedPrecondition, match="Linear.* is closed"):
        chain(matrix(random, 3, 40))
    chain.close()


def test_named_layers_are_found_by_another_worker(session, server, random):
    made = [
        gemmd.Linear(session, matrix(random, n, k), quantize=None, name=f"s/{n}")
        for k, n in ((40, 24), (24, 16))
    ]
    chain = gemmd.Sequential(*made)
    x = matrix(random, 3, 40)
    with gemmd.Client(server.target, retry=QUICK) as client, client.session() as another:
        found = gemmd.Sequential(*(gemmd.Linear(another, name=f"s/{n}") for n in (24, 16)))
        assert np.array_equal(found(x), chain(x))
        assert found.name == chain.name == "s/24+s/16"
    chain.unpublish()
    with pytest.raises(gemmd.NotFound):
        gemmd.Linear(session, name="s/24")


def test_asyncio_has_it(server, random):
    w1, w2 = matrix(random, 24, 40), matrix(random, 16, 24)
    x = matrix(random, 3, 40)

    async def main():
        client = gemmd.aio.Client(server.target, timeout_s=20, retry=QUICK)
        async with client, client.session() as session:
            layers = [await gemmd.aio.Linear.create(session, w, quantize=None) for w in (w1, w2)]
            async with await gemmd.aio.Sequential.create(*layers) as chain:
                ys = await asyncio.gather(*(chain(x) for _ in range(3)))
                return [np.asarray(y) for y in ys], repr(chain)

    ys, shown = asyncio.run(main())
    for y in ys:
        assert relative_error(y, x @ w1.T @ w2.T) < 1e-5
    assert shown.startswith("Sequential(Linear(40 -> 24") and shown.endswith(", asyncio)")
