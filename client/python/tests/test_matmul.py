import itertools
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gemmd
from gemmd._ops.multiply import INLINE_BYTES, QUANTIZED, scratch_size
from gemmd._wire import methods

from .numerics import relative_error


def test_arrays_multiply_in_one_round_trip_once_there_is_scratch(fake, session, random):
    a, b = random.standard_normal((5, 7), "f4"), random.standard_normal((7, 3), "f4")
    for _ in range(3):
        d = session.matmul(a, b)
        np.testing.assert_allclose(d, a @ b, rtol=1e-5, atol=1e-5)
    assert (fake.count(methods.EXECUTE), fake.count(methods.CREATE_BUFFER)) == (3, 1)
    assert d.report.kernel == "fake_matmul"
    assert isinstance(d, np.ndarray)


def test_what_is_computed_from_a_result_carries_no_report(session, random):
    a = random.standard_normal((4, 4), "f4")
    d = session.matmul(a, a)
    assert not (d + 1).report and d.report


@pytest.mark.parametrize("quantize", sorted(QUANTIZED))
def test_quantised_products_are_near(session, random, quantize):
    a, b = random.standard_normal((65, 200), "f4"), random.standard_normal((200, 131), "f4")
    exact = a.astype(np.float64) @ b
    error = relative_error(session.matmul(a, b, quantize=quantize), exact)
    # e4m3 keeps 3 bits of mantissa: about 2.6 % an element of either factor; int8 about 1 % of the
    # largest.
    assert 1e-3 < error < 0.06


@pytest.mark.parametrize("shape", [(6, 300), (3, 6, 300)], ids=str)
def test_scales_of_a_lie_along_the_rows_where_gpus_read_them(fake, session, random, shape):
    a, b = random.standard_normal(shape, "f4"), random.standard_normal((300, 40), "f4")
    got = session.matmul(a, b, quantize="fp8-block")
    assert 1e-3 < relative_error(got, a.astype(np.float64) @ b) < 0.06
    program = next(request.ops for name, request in fake.calls if name == methods.EXECUTE)
    scales = next(op.matmul for op in program if op.HasField("matmul")).a.scales
    assert list(scales.strides) == [24, 1, 8][3 - len(shape) :]
    assert scales.offset_bytes % 16 == 0
    assert scales.buffer_id and scales in [
        op.quantize.scales for op in program if op.HasField("quantize")
    ]


def test_resident_weights_and_quantised_operands_are_used_where_they_lie(session, random):
    a, w = random.standard_normal((9, 130), "f4"), random.standard_normal((140, 130), "f4")
    weights = session.upload(w)
    exact = a.astype(np.float64) @ w.T
    assert relative_error(session.matmul(a, weights.T), exact) < 1e-5
    operand = session.operand(w.shape, gemmd.Granularity.BLOCK_128X128)
    session.execute([gemmd.quantize(weights, operand)])
    got = session.matmul(a, operand.T, quantize="fp8-block")
    assert [op.op for op in got.report.ops] == ["write", "quantize", "matmul", "read"]
    assert 1e-3 < relative_error(got, exact) < 0.06


def test_large_arrays_travel_by_transfer(fake, session, random):
    a = random.standard_normal((1024, 300), "f4")
    b = random.standard_normal((300, 64), "f4")
    assert a.nbytes > INLINE_BYTES
    d = session.matmul(a, b)
    np.testing.assert_allclose(d, a @ b, rtol=1e-4, atol=1e-4)
    assert d.transfer.path == "grpc" and d.report.kernel == "fake_matmul"
    assert fake.count(methods.UPLOAD) == 2


def test_the_result_can_stay_on_the_device(session, random):
    a = random.standard_normal((4, 4), "f4")
    out = session.create_buffer(shape=(4, 4), dtype="bf16")
    result = session.matmul(a, a, out=out, activation="relu")
    assert result.report.kernel == "fake_matmul" and len(result) == 0
    got = out.download().astype("f4")
    np.testing.assert_allclose(got, np.maximum(a @ a, 0), rtol=0.02, atol=0.02)


def test_batches_bias_alpha_and_output_dtype(session, random):
    a, b = random.standard_normal((3, 4, 5), "f4"), random.standard_normal((5, 6), "f4")
    bias = random.standard_normal(6, "f4")
    d = session.matmul(a, b, bias=bias, alpha=0.5, out_dtype="bf16")
    assert d.dtype == gemmd.bfloat16
    np.testing.assert_allclose(d.astype("f4"), 0.5 * a @ b + bias, rtol=0.02, atol=0.02)


def test_float64_arrays_become_float32_with_one_warning_at_the_callers_line(session, random):
    a = random.standard_normal((4, 4))
    with pytest.warns(gemmd.PrecisionWarning, match=r"a, b, bias: float64 is narrowed") as caught:
        got = session.matmul(a, a, bias=np.ones(4))
    assert [one.filename for one in caught] == [__file__]
    np.testing.assert_allclose(got, a @ a + 1, rtol=1e-5, atol=1e-5)


def test_arrays_follow_a_resident_dtype(session, random):
    a = random.standard_normal((4, 4), "f4")
    halves = session.upload(a.astype(np.float16))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = session.matmul(a, halves)
    np.testing.assert_allclose(got, a @ a, rtol=0.01, atol=0.01)


INTEGERS = ["int16", "int32", "int64", "uint8", "uint64", "bool", "complex64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_numbers_that_float32_would_lose_are_refused(fake, session, dtype):
    """2**24 + 1 is no float32: as one, 16777217 @ 1 is 16777216."""
    exact, whole = np.ones((4, 4), "f4"), np.full((4, 4), 2**24 + 1).astype(dtype)
    for operands, name in (((whole, exact), "a"), ((exact, whole), "b"), ((whole, whole), "a")):
        with pytest.raises(TypeError, match=rf"{name} has dtype {dtype}.*{name}\.astype"):
            session.matmul(*operands)
    with pytest.raises(TypeError, match=f"bias has dtype {dtype}"):
        session.matmul(exact, exact, bias=whole[0])
    with pytest.raises(TypeError, match=f"a has dtype {dtype}"):
        session.matmul(whole, session.upload(exact))
    if dtype != "int32":  # counts and row numbers are kept, and not multiplied
        with pytest.raises(TypeError, match=f"data has dtype {dtype}"):
            session.upload(whole)
    assert fake.count(methods.EXECUTE) == 0


FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("of_a, of_b", list(itertools.permutations(FLOATS, 2)))
def test_arrays_of_two_float_types_keep_their_numbers(session, random, of_a, of_b):
    """2e5 is no float16, 1 + 2**-8 no bfloat16, 1.125 no E5M2, 2**-15 no E4M3."""
    a, b = (random.choice([2**-15, 1.125, 1 + 2**-8, 448, 2e5], (4, 8)) for _ in "ab")
    with np.errstate(over="ignore"):
        a, b = a.astype(np.dtype(of_a)), b.astype(np.dtype(of_b))
    a[~np.isfinite(a)], b[~np.isfinite(b)] = 1, 1
    exact = a.astype("f8") @ b.T.astype("f8")
    np.testing.assert_allclose(session.matmul(a, b.T), exact, rtol=1e-5)


@pytest.mark.parametrize("stored", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_are_not_rounded_to_resident_fp8_without_scales(session, stored):
    a = np.ones((4, 4), "f4")
    there = session.upload(a.astype(np.dtype(stored)))
    with pytest.raises(TypeError, match=rf"a has dtype float32.*{stored}.*Operand.*Linear"):
        session.matmul(a, there)
    with pytest.raises(TypeError, match="b has dtype float32"):
        session.matmul(there, a)
    np.testing.assert_array_equal(session.matmul(a.astype(there.dtype), there), np.full((4, 4), 4))


@pytest.mark.parametrize("quantize", QUANTIZED)
@pytest.mark.parametrize("m, k, n", [(0, 130, 3), (3, 0, 2), (2, 130, 0), (0, 0, 0)])
def test_what_is_empty_is_quantised_too(session, quantize, m, k, n):
    got = session.matmul(np.ones((m, k), "f4"), np.ones((k, n), "f4"), quantize=quantize)
    np.testing.assert_array_equal(got, np.zeros((m, n)))


def test_int8_multiplies_int8_alone(session):
    small, exact = np.ones((4, 4), np.int8), np.ones((4, 4), "f4")
    np.testing.assert_array_equal(session.matmul(small, small), np.full((4, 4), 4))
    with pytest.raises(TypeError, match="int8 multiplies int8 alone"):
        session.matmul(small, exact)
    with pytest.raises(TypeError, match="int8 multiplies int8 alone"):
        session.matmul(exact, session.upload(small))


def test_inner_extents_must_agree(session):
    with pytest.raises(ValueError, match="k differs"):
        session.matmul(np.zeros((2, 3), "f4"), np.zeros((4, 5), "f4"))
    with pytest.raises(ValueError, match="matrix"):
        session.matmul(np.zeros(3, "f4"), np.zeros((3, 5), "f4"))


@pytest.mark.parametrize(
    ("need", "made"), [(1, 1 << 20), (1 << 20, 1 << 20), ((1 << 20) + 1, 1 << 21)]
)
def test_scratch_grows_by_powers_of_two(need, made):
    assert scratch_size(need) == made


def scratch_of(session):
    return [one for one in session.buffers() if one.label == "scratch"]


def test_scratch_that_a_burst_needed_is_given_up_after_it(session, random):
    a = random.standard_normal((64, 64), "f4")
    together, at_once = threading.Barrier(12), session.execute

    def one_of_a_burst(_):
        session.matmul(a, a)

    def execute(*given, **options):
        together.wait(timeout=20)  # each call has its scratch before any has done
        return at_once(*given, **options)

    session.execute = execute
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(one_of_a_burst, range(12)))
    del session.execute
    assert len(scratch_of(session)) == 12
    for _ in range(200):
        session.matmul(a, a)
    assert len(scratch_of(session)) == 1


@pytest.mark.parametrize("sharing", [False, True])
def test_a_session_whose_buffers_are_all_deleted_works_on(fake, sharing_fake, random, sharing):
    a, large = random.standard_normal((64, 64), "f4"), random.standard_normal((1024, 2048), "f4")
    target = (sharing_fake if sharing else fake).target
    with gemmd.Client(target, timeout_s=20) as client, client.session() as session:
        for turn in range(2):
            np.testing.assert_allclose(session.matmul(a, a), a @ a, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(session.matmul(a, large[:64]), a @ large[:64], 1e-3, 1e-3)
            held = session.upload(large)
            assert turn or bool(held.transfer.why) != sharing
            np.testing.assert_array_equal(held.download(), large)
            for buffer in session.buffers():
                buffer.delete()
        with pytest.raises(gemmd.NotFound, match=held.buffer_id.hex()[:8]):
            held.download()
        with pytest.raises(gemmd.NotFound):
            session.matmul(large.T[:8], held)


def test_idle_scratch_gives_way_to_a_buffer_that_has_no_room(fake, session, random):
    a = random.standard_normal((64, 64), "f4")
    session.matmul(a, a)
    assert len(scratch_of(session)) == 1
    fake.fail(methods.CREATE_BUFFER, "RESOURCE_EXHAUSTED", "tenant default has too many bytes")
    session.upload(a)
    assert not scratch_of(session)
