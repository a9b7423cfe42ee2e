"""`@` on what lies on the server."""

import asyncio

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd._wire import methods

from .conftest import QUICK


def close(got, exact, error):
    exact = np.asarray(exact, np.float64)
    return np.linalg.norm(np.asarray(got, np.float64) - exact) < error * np.linalg.norm(exact)


@pytest.fixture
def x(random):
    return random.standard_normal((6, 256), "f4")


@pytest.fixture
def w(random):
    return random.standard_normal((130, 256), "f4")


def test_an_array_times_a_buffer_or_a_tensor(session, x, w):
    weights = session.upload(w)
    for y in (x @ weights.T, x @ weights.tensor().T, x @ session.upload(w.T.copy())):
        assert isinstance(y, gemmd.Array) and close(y, x @ w.T, 1e-5)
        assert y.report.kernel == "fake_matmul"


def test_a_buffer_times_an_array_and_two_buffers(session, x, w):
    assert close(session.upload(x) @ w.T, x @ w.T, 1e-5)
    assert close(session.upload(x) @ session.upload(w).T, x @ w.T, 1e-5)


@pytest.mark.parametrize("kind", ["BLOCK_128X128", "PER_ROW", "PER_TENSOR"])
@pytest.mark.parametrize("dtype", ["e4m3", "i8"])
def test_what_stands_beside_an_operand_is_quantised_to_suit_it(fake, session, x, w, kind, dtype):
    weights = session.operand(w.shape, gemmd.Granularity[kind], dtype)
    session.execute([gemmd.quantize(session.upload(w), weights)])
    y = x @ weights.T
    assert close(y, x @ w.T, 0.06)
    names = [op.ListFields()[0][0].name for op in fake.calls[-1][1].ops]
    assert names == ["write", "quantize", "matmul", "read"]


def test_two_operands_are_multiplied_as_they_are(fake, session, x, w):
    a = session.operand(x.shape, gemmd.Granularity.BLOCK_1X128)
    b = session.operand(w.shape, gemmd.Granularity.BLOCK_128X128)
    session.execute([
        gemmd.quantize(session.upload(x), a), gemmd.quantize(session.upload(w), b)
    ])  # fmt: skip
    assert close(a @ b.T, x @ w.T, 0.06)
    assert [op.ListFields()[0][0].name for op in fake.calls[-1][1].ops] == ["matmul", "read"]


def test_with_asyncio_it_is_awaited(fake, x, w):
    async def work():
        async with (
            gemmd.aio.Client(fake.target, retry=QUICK) as client,
            client.session() as session,
        ):
            weights = await session.upload(w)
            return await (x @ weights.T), await (weights @ x.T)

    left, right = asyncio.run(work())
    assert close(left, x @ w.T, 1e-5) and close(right, w @ x.T, 1e-5)


def test_what_no_session_made_is_refused():
    tensor = gemmd.Tensor(b"0" * 16, "f32", (2, 2))
    with pytest.raises(TypeError, match=r"neither side was made by a session"):
        tensor @ tensor


def test_what_numpy_is_asked_for_beside_it_is_refused_and_nothing_is_sent(fake, session, w):
    weights = session.upload(w)
    sent = fake.count(methods.EXECUTE)
    for wrong in (
        lambda: np.matmul(w.T, weights, dtype="f4"),
        lambda: w * weights,
        lambda: -1 * weights.T,
    ):
        with pytest.raises(TypeError, match=r"lies on the server|unsupported operand"):
            wrong()
    assert fake.count(methods.EXECUTE) == sent
