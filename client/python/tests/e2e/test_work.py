"""Programs on a real daemon, measured against numpy in float64."""

import asyncio

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd._ops.multiply import QUANTIZED
from gemmd._wire import methods

from ..numerics import relative_error

pytestmark = pytest.mark.e2e

# Relative error that rounding the result to this dtype may add: half a step of its mantissa.
BOUND = {"f32": 1e-6, "bf16": 4e-3, "f16": 5e-4}


@pytest.mark.parametrize("dtype", sorted(BOUND))
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (64, 48, 96), (127, 129, 131)], ids=str)
def test_matmuls_are_as_exact_as_float32_sums_and_the_results_dtype(session, random, dtype, shape):
    m, n, k = shape
    kind = gemmd.as_dtype(dtype)
    a = random.standard_normal((m, k), "f4").astype(kind)
    b = random.standard_normal((k, n), "f4").astype(kind)
    d = session.matmul(a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert relative_error(d, exact) < 1e-5
    assert d.report.kernel and d.report.device_seconds > 0
    rounded = session.matmul(a, b, out_dtype=dtype)
    assert rounded.dtype == kind
    assert relative_error(rounded, exact) < BOUND[dtype] + 1e-5


@pytest.mark.parametrize("quantize", sorted(QUANTIZED))
def test_quantised_matmuls_are_near(session, random, quantize):
    a, b = random.standard_normal((100, 200), "f4"), random.standard_normal((200, 144), "f4")
    exact = a.astype(np.float64) @ b
    error = relative_error(session.matmul(a, b, quantize=quantize), exact)
    assert 1e-4 < error < 0.06


def test_quantising_on_the_device_gives_the_scales_that_the_contract_says(session, random):
    x = random.standard_normal((130, 300), "f4")
    operand = session.operand(x.shape, gemmd.Granularity.BLOCK_1X128)
    result = session.execute(
        [
            gemmd.quantize(session.upload(x), operand),
            gemmd.read(operand.values),
            gemmd.read(operand.scales),
        ]
    )
    values, scales = result.outputs
    parts = np.array_split(x, [128, 256], axis=1)
    amax = np.stack([np.abs(part).max(axis=1) for part in parts], axis=1)
    np.testing.assert_allclose(scales, amax / 448, rtol=1e-6)
    spread = scales.repeat(128, axis=1)[:, :300]
    # e4m3 has 3 stored mantissa bits, so half a step is 1/16 of the value; near zero half of 2^-9.
    distance = np.abs(values.astype("f4") * spread - x)
    assert (distance <= np.abs(x) / 16 * 1.001 + spread * 2**-10 * 1.001).all()


@pytest.mark.parametrize("shape", [(1, 300), (130, 300), (3, 5, 300)], ids=str)
def test_the_layout_of_scales_changes_no_bit_of_them_nor_of_the_product(session, random, shape):
    blocks = gemmd.Granularity.BLOCK_1X128
    x, w = random.standard_normal(shape, "f4"), random.standard_normal((40, 300), "f4")
    source = session.upload(x)
    weights = session.operand(w.shape, gemmd.Granularity.BLOCK_128X128)
    session.execute([gemmd.quantize(session.upload(w), weights)])
    columns = session.operand(shape, blocks)
    dense = session.create_buffer(shape=blocks.scales_shape(shape), dtype="f32")
    rows = gemmd.Operand(columns.values, dense.tensor(), blocks)
    assert columns.scales.strides[-2:] == (1, -(-shape[-2] // 4) * 4)
    d = session.create_buffer(shape=(*shape[:-1], 40), dtype="f32")
    scales, products = [], []
    for a in (columns, rows):
        result = session.execute(
            [
                gemmd.fill(a.scales, -1),
                gemmd.quantize(source, a),
                gemmd.matmul(a, weights, d),
                gemmd.read(a.scales),
                gemmd.read(d),
            ]
        )
        scales.append(result.outputs[0])
        products.append(result.outputs[1])
    np.testing.assert_array_equal(scales[0], scales[1])
    np.testing.assert_array_equal(products[0], products[1])
    assert 1e-3 < relative_error(products[0], x.astype(np.float64) @ w.T) < 0.06


def test_views_of_resident_matrices_multiply(session, random):
    x = random.standard_normal((40, 64), "f4")
    resident = session.upload(x)
    d = session.create_buffer(shape=(8, 20), dtype="f32")
    a, b = resident[8:16, 16:48], resident.T[16:48, ::2]
    got = session.execute([gemmd.matmul(a, b.T, d), gemmd.read(d)])[0]
    exact = x.astype(np.float64)[8:16, 16:48] @ x.T.astype(np.float64)[16:48, ::2]
    assert relative_error(got, exact) < 1e-5


def test_a_program_computes_the_whole_expression(session, random):
    a, b, c = (random.standard_normal((16, 16), "f4") for _ in range(3))
    bias = random.standard_normal(16, "f4")
    d, t = session.upload(c), [session.upload(x) for x in (a, b, bias)]
    half = session.create_buffer(shape=(16, 16), dtype="f16")
    result = session.execute(
        [
            gemmd.matmul(t[0], t[1], d, c=d, bias=t[2], alpha=0.5, beta=2.0, activation="relu"),
            gemmd.convert(d, half),
            gemmd.fill(half[0], 4.0),
            gemmd.copy(half[0], half[1]),
            gemmd.read(d),
            gemmd.read(half),
        ]
    )
    exact = np.maximum(0.5 * a.astype(np.float64) @ b.T + 2.0 * c + bias, 0)
    assert relative_error(result[0], exact) < 1e-5
    np.testing.assert_allclose(result[1][2:], result[0][2:], rtol=1e-3, atol=1e-6)
    assert (result[1][:2] == 4).all()
    assert [op.op for op in result.report.ops] == [
        "matmul", "convert", "fill", "copy", "read", "read",
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [1, 16, 130])
@pytest.mark.parametrize("period", [0, 1, 128])
def test_gate_up_gated_and_down_are_one_program(session, random, rows, period):
    hidden, inner = 256, 384
    x = random.standard_normal((rows, hidden), "f4")
    w1 = random.standard_normal((2 * inner, hidden), "f4") / hidden**0.5
    w2 = random.standard_normal((hidden, inner), "f4") / inner**0.5
    blocks = gemmd.Granularity.BLOCK_1X128
    gate_up, down = (session.operand(w.shape, gemmd.Granularity.BLOCK_128X128) for w in (w1, w2))
    session.execute(
        [
            gemmd.quantize(session.upload(w1), gate_up),
            gemmd.quantize(session.upload(w2), down),
        ]
    )
    a, y = session.operand(x.shape, blocks), session.operand((rows, inner), blocks)
    pairs = session.create_buffer(shape=(rows, 2 * inner), dtype="bf16")
    d = session.create_buffer(shape=(rows, hidden), dtype="bf16")
    result = session.execute(
        [
            gemmd.quantize(session.upload(x), a),
            gemmd.matmul(a, gate_up, pairs),
            gemmd.gated(pairs, y, activation="silu", period=period),
            gemmd.matmul(y, down, d),
            gemmd.read(d),
        ]
    )
    wide = (x.astype(np.float64) @ w1.T.astype(np.float64)).reshape(rows, -1, 2, period or inner)
    gate, up = (wide[:, :, i].reshape(rows, inner) for i in (0, 1))
    exact = gate / (1 + np.exp(-gate)) * up @ w2.T.astype(np.float64)
    assert 1e-4 < relative_error(result[0], exact) < 0.12  # two matmuls with both sides in FP8
    names = [op.op for op in result.report.ops]
    assert names[:4] == ["quantize", "matmul", "gated", "matmul"]


def test_batches_share_rank_two_weights(session, random):
    a, b = random.standard_normal((3, 10, 20), "f4"), random.standard_normal((20, 12), "f4")
    assert relative_error(session.matmul(a, b), a.astype(np.float64) @ b) < 1e-5


def test_a_repeated_op_id_is_answered_and_not_run(session):
    total = session.create_buffer(shape=(1, 1), dtype="f32")
    one = session.upload(np.ones((1, 1), "f4"))
    ops = [gemmd.matmul(one, one, total, c=total, beta=1.0), gemmd.read(total)]
    head = gemmd._wire.programs.session_field(session.session_id)
    request = head + gemmd._wire.programs.encode_ops(ops) + gemmd._wire.programs.OpIds().field()
    answers = [
        gemmd.Result(session.transport.call(methods.EXECUTE, request), [total.tensor()])
        for _ in range(2)
    ]
    assert [answer[0].item() for answer in answers] == [1, 1]
    assert [answer.replayed for answer in answers] == [False, True]


def test_plans_run_with_other_data_and_other_buffers(session, random):
    x, y, d = (session.create_buffer(shape=(8, 8), dtype="f32") for _ in range(3))
    data = [random.standard_normal((8, 8), "f4") for _ in range(3)]
    w = session.upload(data[2])
    with session.plan([gemmd.write(x, data[0]), gemmd.matmul(x, w, d), gemmd.read(d)]) as plan:
        assert len(plan.kernels) == 3
        for source, rebind in ((data[0], None), (data[1], None), (data[1], {x: y})):
            got = plan.run(rebind=rebind, inputs=[source])[0]
            assert relative_error(got, source.astype(np.float64) @ data[2].T) < 1e-5
    np.testing.assert_array_equal(x.download(), data[1])
    np.testing.assert_array_equal(y.download(), data[1])
    with pytest.raises(gemmd.NotFound):
        plan.run()


def test_queued_batches_run_in_order_and_stop_after_a_failure(session):
    total = session.create_buffer(shape=(1, 1), dtype="f32")
    one = session.upload(np.ones((1, 1), "f4"))
    add = [gemmd.matmul(one, one, total, c=total, beta=1.0), gemmd.read(total)]
    with session.create_buffer(16) as gone:
        bad_ops = [gemmd.fill(gone.tensor((4,), "f32"), 0)]
    with session.queue() as queue:
        futures = [queue.submit(add) for _ in range(300)]
        bad, behind = queue.submit(bad_ops), queue.submit(add)
        again = queue.submit(add, resume=True)
    assert [future.result()[0].item() for future in futures] == list(range(1, 301))
    with pytest.raises(gemmd.NotFound) as caught:
        bad.result()
    assert caught.value.reason
    with pytest.raises(gemmd.Aborted):
        behind.result()
    assert again.result()[0].item() == 301


def test_asyncio_has_many_calls_in_flight(address, random):
    a = random.standard_normal((32, 32), "f4")

    async def scenario():
        async with gemmd.aio.Client(address) as client, client.session() as session:
            products = await asyncio.gather(*(session.matmul(a * i, a) for i in range(50)))
            t = await session.upload(a)
            async with session.queue() as queue:
                futures = [await queue.submit([gemmd.read(t)]) for _ in range(200)]
                reads = [(await future)[0] for future in futures]
            large = await session.upload(np.zeros(3 << 20, np.int8))
            return products, reads, await large.download()

    products, reads, large = asyncio.run(asyncio.wait_for(scenario(), 60))
    for i, got in enumerate(products[1:], start=1):
        assert relative_error(got, (a * i).astype(np.float64) @ a) < 1e-5
    assert all((got == a).all() for got in reads)
    assert large.size == 3 << 20 and not large.any()


class Room:
    """Tensors of a buffer of zeros, one behind the other."""

    def __init__(self, session):
        self._buffer, self._at = session.create_buffer(1 << 20), 0

    def __call__(self, *shape, dtype="f32"):
        self._at += 4096
        return self._buffer.tensor(shape, dtype, offset_bytes=self._at)

    def e4m3(self, rows, columns):
        blocks = gemmd.Granularity.BLOCK_1X128
        scales = self(*blocks.scales_shape((rows, columns)))
        return gemmd.Operand(self(rows, columns, dtype="e4m3"), scales, blocks)


# Of m x n x k, of which one or more are 0.
EMPTY = {
    "matmul": lambda t, m, n, k, kind: [
        gemmd.matmul(t(m, k, dtype=kind), t(n, k, dtype=kind), t(m, n), bias=t(n)),
        gemmd.matmul(t(2, m, k, dtype=kind), t(n, k, dtype=kind), t(2, m, n)),
        gemmd.matmul(t(0, m, k, dtype=kind), t(0, n, k, dtype=kind), t(0, m, n), bias=t(n)),
    ],
    "gate": lambda t, m, n, k, kind: [
        gemmd.matmul(
            t(m, k, dtype=kind), t(2 * n, k, dtype=kind), t.e4m3(m, n), gate=gemmd.Gate()
        )
    ],
    "groups": lambda t, m, n, k, kind: [
        gemmd.grouped_matmul(
            t(m, k, dtype=kind), t(3, n, k, dtype=kind), t(4, dtype="i32"), t(m, n)
        ),
        gemmd.grouped_matmul(
            t(3, m, k, dtype=kind), t(3, n, k, dtype=kind), t(3, dtype="i32"), t(3, m, n),
            layout="counts",
        ),
        gemmd.k_grouped_matmul(
            t(m, k, dtype=kind), t(n, k, dtype=kind), t(4, dtype="i32"), t(3, m, n)
        ),
    ],
    "moves": lambda t, m, n, k, kind: [
        gemmd.fill(t(m, n, dtype=kind), 1),
        gemmd.copy(t(m, n, dtype=kind), t(m, n, dtype=kind)),
        gemmd.convert(t(m, n), t(m, n, dtype=kind)),
        gemmd.quantize(t(m, n), t.e4m3(m, n)),
        gemmd.gated(t(m, 2 * n), t.e4m3(m, n)),
        gemmd.choose(t(m, 8), t(m, 2, dtype="i32"), t(m, 2)),
        gemmd.combine(t(2, n), t(m, 2, dtype="i32"), t(m, 2), t(m, n)),
        gemmd.combine(t(m + 1, n), t(2, 0, dtype="i32"), t(2, 0), t(2, n)),
        gemmd.route(
            t(m, k, dtype="i32"), t(4, dtype="i32"), t(m * k, dtype="i32"), t(m, k, dtype="i32")
        ),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "e4m3", "e5m2", "i8"])
@pytest.mark.parametrize("extents", [(0, 4, 3), (5, 0, 3), (5, 4, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("what", EMPTY)
def test_what_is_empty_runs_within_any_deadline(session, what, extents, kind):
    for op in EMPTY[what](Room(session), *extents, kind):
        with session.plan([op]) as plan:
            assert 0 <= plan.estimated_seconds < 1e-3, op  # with NaN no deadline could be met
        session.execute([op], timeout_s=20)
