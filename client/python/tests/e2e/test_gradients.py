"""Gradients of weights on a real daemon, measured against numpy in float64."""

import numpy as np
import pytest

import gemmd

pytestmark = pytest.mark.e2e

BLOCKS = gemmd.Granularity.BLOCK_1X128


def quantised(session, x, dtype):
    """An operand of x with scales of 1x128, and what it stands for."""
    operand = session.operand(x.shape, BLOCKS, dtype=dtype)
    result = session.execute(
        [
            gemmd.quantize(session.upload(x), operand),
            gemmd.read(operand.values),
            gemmd.read(operand.scales),
        ]
    )
    values, scales = result.outputs
    return operand, values.astype("f8") * scales.astype("f8").repeat(128, 1)[:, : x.shape[1]]


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("out", ["f32", "bf16"])
def test_each_expert_has_the_gradient_of_its_own_columns(session, random, beta, out):
    ks, ends, at = [0, 1, 127, 129, 256], [], 0
    spans = []
    for k in ks:
        first = -(-at // 128) * 128 if k else at
        at = first + k
        spans.append((first, at))
        ends.append(at)
    a, x = quantised(session, random.standard_normal((48, at), "f4"), "e4m3")
    b, y = quantised(session, random.standard_normal((40, at), "f4"), "e5m2")
    held = random.standard_normal((len(ks), 48, 40), "f4").astype(gemmd.as_dtype(out))
    d = session.upload(held)
    numbers = session.upload(np.array(ends, np.int32))
    op = gemmd.k_grouped_matmul(a, b, numbers, d, c=d, beta=beta, layout="ends", alignment=128)
    (got,) = session.execute([op, gemmd.read(d)]).outputs
    for g, (first, end) in enumerate(spans):
        exact = x[:, first:end] @ y[:, first:end].T + beta * held[g].astype("f8")
        error = np.linalg.norm(got[g].astype("f8") - exact)
        assert error <= (5e-3 if out == "bf16" else 1e-3) * np.linalg.norm(exact)


def test_infinities_of_e5m2_come_through(session):
    a = np.ones((2, 4), gemmd.float8_e5m2)
    a[0, 1] = np.inf
    a[1, 2] = np.nan
    held = session.upload(a)
    d = session.create_buffer(shape=(2, 3), dtype="f32")
    b = session.upload(np.ones((3, 4), gemmd.float8_e4m3fn))
    (got,) = session.execute([gemmd.matmul(held, b, d), gemmd.read(d)]).outputs
    assert np.all(np.isposinf(got[0])) and np.all(np.isnan(got[1]))
