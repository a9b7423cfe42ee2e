import math

import grpc
import numpy as np
import pytest

import gemmd
from gemmd._wire import methods


def test_one_round_trip_writes_multiplies_and_reads(fake, session, random):
    a, b = random.standard_normal((5, 7), "f4"), random.standard_normal((3, 7), "f4")
    x = session.create_buffer(shape=a.shape, dtype="f32")
    w = session.upload(b)
    d = session.create_buffer(shape=(5, 3), dtype="f32")
    result = session.execute([gemmd.write(x, a), gemmd.matmul(x, w, d), gemmd.read(d)])
    np.testing.assert_allclose(result[0], a @ b.T, rtol=1e-5, atol=1e-5)
    assert fake.count(methods.EXECUTE) == 1


def test_alpha_beta_bias_and_relu_reach_the_server(session, random):
    a, b, c = (random.standard_normal((4, 4), "f4") for _ in range(3))
    bias = random.standard_normal(4, "f4")
    d, t = session.upload(c), [session.upload(x) for x in (a, b, bias)]
    op = gemmd.matmul(
        t[0], t[1], d, c=d, bias=t[2], alpha=0.5, beta=2.0, activation="relu", kernel="special"
    )
    assert op.message.matmul.kernel == "special"
    got = session.execute([op, gemmd.read(d)])[0]
    np.testing.assert_allclose(
        got, np.maximum(0.5 * a @ b.T + 2 * c + bias, 0), rtol=1e-5, atol=1e-5
    )


def activated(name, x):
    return {
        "none": lambda: x,
        "relu": lambda: np.maximum(x, 0),
        "silu": lambda: x / (1 + np.exp(-x)),
        "gelu_tanh": lambda: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "gelu_erf": lambda: x / 2 * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
        "relu_squared": lambda: np.maximum(x, 0) ** 2,
    }[name]()


@pytest.mark.parametrize("name", ["none", "relu", "silu", "gelu_tanh", "gelu_erf", "relu_squared"])
def test_every_activation_reaches_the_server(session, random, name):
    x = 3 * random.standard_normal((4, 6), "f4")
    t, eye = session.upload(x), session.upload(np.eye(6, dtype="f4"))
    d = session.create_buffer(shape=(4, 6), dtype="f32")
    gates = session.create_buffer(shape=(4, 3), dtype="f32")
    result = session.execute(
        [
            gemmd.matmul(t, eye, d, activation=name),
            gemmd.gated(t, gates, activation=name),
            gemmd.read(d),
            gemmd.read(gates),
        ]
    )
    np.testing.assert_allclose(result[0], activated(name, x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        result[1], activated(name, x[:, :3]) * x[:, 3:], rtol=1e-5, atol=1e-6
    )


def test_an_unknown_activation_is_refused_with_the_names(session):
    t = session.create_buffer(shape=(2, 2), dtype="f32")
    for op in (lambda: gemmd.matmul(t, t, t, activation="swish"),
               lambda: gemmd.gated(t, t, activation="swish")):  # fmt: skip
        with pytest.raises(ValueError, match="'swish' does not exist; use one of none, relu, silu"):
            op()


def test_gated_fields_reach_the_server(session, random):
    x = 6 * random.standard_normal((3, 16), "f4")
    source = session.upload(x)
    y = session.create_buffer(shape=(3, 8), dtype="f32")
    op = gemmd.gated(source, y, period=1, alpha=1.702, limit=7.0, up_offset=1.0)
    got = session.execute([op, gemmd.read(y)])[0]
    gate, up = np.minimum(x[:, ::2], 7), np.clip(x[:, 1::2], -7, 7)
    np.testing.assert_allclose(got, gate / (1 + np.exp(-1.702 * gate)) * (up + 1), rtol=1e-5)
    assert not gemmd.gated(source, y).message.gated.HasField("alpha")
    assert gemmd.gated(source, y).message.gated.activation == 2  # SILU


def test_a_matmul_with_a_gate_is_the_matmul_and_the_gate(session, random):
    x, w = random.standard_normal((5, 40), "f4"), random.standard_normal((512, 40), "f4")
    a, b = session.upload(x), session.upload(w)
    fused = session.create_buffer(shape=(5, 256), dtype="f32")
    quantised = session.operand((5, 256), gemmd.Granularity.BLOCK_1X128)
    gate = gemmd.Gate("silu", period=128, limit=7.0)
    got = session.execute(
        [
            gemmd.matmul(a, b, fused, gate=gate),
            gemmd.matmul(a, b, quantised, gate=gate),
            gemmd.read(fused),
        ]
    )[0]
    pairs = (x @ w.T).reshape(5, 2, 2, 128)
    gates, ups = np.minimum(pairs[:, :, 0], 7), np.clip(pairs[:, :, 1], -7, 7)
    wanted = (gates / (1 + np.exp(-gates)) * ups).reshape(5, 256)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    message = gemmd.matmul(a, b, quantised, gate=gate).message.matmul
    assert message.HasField("d_scales") and message.gate.period == 128
    assert not gemmd.matmul(a, b, fused).message.matmul.HasField("gate")
    with pytest.raises(ValueError, match="PER_ROW; a gate writes BLOCK_1X128"):
        gemmd.matmul(a, b, session.operand((5, 256), gemmd.Granularity.PER_ROW), gate=gate)


def test_gated_into_an_operand_quantises(session, random):
    x = random.standard_normal((5, 600), "f4")
    source = session.upload(x)
    operand = session.operand((5, 300), gemmd.Granularity.BLOCK_1X128)
    values, scales = session.execute(
        [
            gemmd.gated(source, operand),
            gemmd.read(operand.values),
            gemmd.read(operand.scales),
        ]
    ).outputs
    exact = activated("silu", x[:, :300].astype(np.float64)) * x[:, 300:]
    got = values.astype("f4") * scales.repeat(128, axis=1)[:, :300]
    assert np.linalg.norm(got - exact) < 0.04 * np.linalg.norm(exact)
    with pytest.raises(ValueError, match="PER_ROW; gated writes BLOCK_1X128"):
        gemmd.gated(source, session.operand((5, 300), gemmd.Granularity.PER_ROW))


def test_alpha_zero_is_sent_and_alpha_one_is_left_out(session):
    t = session.create_buffer(shape=(2, 2), dtype="f32")
    assert gemmd.matmul(t, t, t, alpha=0.0).message.matmul.HasField("alpha")
    assert not gemmd.matmul(t, t, t).message.matmul.HasField("alpha")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "e4m3", "e5m2", "i8"])
def test_every_dtype_survives_upload_convert_and_read(session, dtype):
    values = np.array([[0, 1, -2], [3, -4, 5]], np.float32)
    typed = values.astype(gemmd.as_dtype(dtype))
    source = session.upload(typed)
    wide = session.create_buffer(shape=(2, 3), dtype="f32")
    result = session.execute([gemmd.convert(source, wide), gemmd.read(wide), gemmd.read(source)])
    np.testing.assert_array_equal(result[0], values)
    assert result[1].dtype == gemmd.as_dtype(dtype)
    np.testing.assert_array_equal(result[1].astype("f4"), values)


def test_copy_and_fill_work_on_views(session):
    source = session.upload(np.arange(12, dtype="f4").reshape(3, 4))
    target = session.create_buffer(shape=(4, 3), dtype="f32")
    program = [gemmd.copy(source.T, target), gemmd.fill(target[0], 9.0), gemmd.read(target)]
    got = session.execute(program)[0]
    expected = np.arange(12, dtype="f4").reshape(3, 4).T.copy()
    expected[0] = 9
    np.testing.assert_array_equal(got, expected)


def test_the_report_names_kernel_times_and_rate(session):
    t = session.upload(np.ones((4, 4), "f4"))
    d = session.create_buffer(shape=(4, 4), dtype="f32")
    report = session.execute([gemmd.fill(d, 0), gemmd.matmul(t, t, d)]).report
    assert report.kernel == "fake_matmul"
    assert [op.reason for op in report.ops] == ["only", "only"]
    assert report.device_seconds > 0
    assert report.tflops == pytest.approx(1e6 / report.device_seconds / 1e12)


def test_options_reach_the_server(fake, session):
    t = session.create_buffer(shape=(2,), dtype="f32")
    session.execute([gemmd.fill(t, 1)], priority="high", report="none")
    request = next(request for name, request in fake.calls if name == methods.EXECUTE)
    assert (request.priority, request.report) == (1, 2)


def test_deterministic_programs_and_plans_say_so(fake, session):
    t = session.create_buffer(shape=(2,), dtype="f32")
    program = [gemmd.fill(t, 1)]
    session.execute(program, deterministic=True)
    session.prepare(program, deterministic=True)()
    session.execute(program)
    asked = [request.deterministic for name, request in fake.calls if name == methods.EXECUTE]
    assert asked == [True, True, False]
    pinned, free = session.plan(program, deterministic=True), session.plan(program, "label")
    assert (pinned.deterministic, free.deterministic) == (True, False)
    asked = [request.deterministic for name, request in fake.calls if name == methods.CREATE_PLAN]
    assert asked == [True, False]


def test_a_prepared_program_runs_again_with_a_fresh_op_id(fake, session):
    t = session.create_buffer(shape=(2,), dtype="f32")
    step = session.prepare([gemmd.fill(t, 1), gemmd.read(t)])
    assert list(step()[0]) == list(step()[0]) == [1, 1]
    ids = [request.op_id for name, request in fake.calls if name == methods.EXECUTE]
    assert len(set(ids)) == 2 and all(len(one) == 16 for one in ids)


def test_a_write_of_another_shape_is_refused_before_anything_is_sent(session):
    t = session.create_buffer(shape=(2, 3), dtype="f32")
    with pytest.raises(ValueError, match="shape"):
        gemmd.write(t, np.zeros((3, 2), "f4"))


def test_an_untyped_buffer_needs_dtype_and_shape(session):
    raw = session.create_buffer(64)
    with pytest.raises(ValueError, match="untyped"):
        gemmd.read(raw)
    assert session.execute([gemmd.read(raw.tensor((4, 4), "f32"))])[0].shape == (4, 4)


def test_an_array_where_a_tensor_belongs_is_a_type_error(session):
    with pytest.raises(TypeError, match="upload"):
        gemmd.read(np.zeros(3))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("CANCELLED", gemmd.Cancelled),
        ("INVALID_ARGUMENT", gemmd.InvalidArgument),
        ("DEADLINE_EXCEEDED", gemmd.DeadlineExceeded),
        ("NOT_FOUND", gemmd.NotFound),
        ("ALREADY_EXISTS", gemmd.AlreadyExists),
        ("PERMISSION_DENIED", gemmd.PermissionDenied),
        ("RESOURCE_EXHAUSTED", gemmd.ResourceExhausted),
        ("FAILED_PRECONDITION", gemmd.FailedPrecondition),
        ("ABORTED", gemmd.Aborted),
        ("OUT_OF_RANGE", gemmd.OutOfRange),
        ("UNIMPLEMENTED", gemmd.Unimplemented),
        ("INTERNAL", gemmd.Internal),
        ("UNAVAILABLE", gemmd.Unavailable),
        ("DATA_LOSS", gemmd.DataLoss),
        ("UNKNOWN", gemmd.Error),
    ],
)
def test_each_status_becomes_its_exception_with_message_reason_and_request_id(
    fake, session, code, kind
):
    fake.fail(methods.EXECUTE, code, "n=70 is not a multiple of 8", "SHAPE")
    t = session.create_buffer(shape=(2,), dtype="f32")
    with pytest.raises(gemmd.Error) as caught:
        session.execute([gemmd.fill(t, 1)])
    error = caught.value
    assert type(error) is kind
    assert (error.message, error.reason, error.request_id) == (
        "n=70 is not a multiple of 8", "SHAPE", "r-7",
    )  # fmt: skip
    assert error.code is grpc.StatusCode[code]
    assert fake.runs == 0


def test_errors_are_also_the_builtin_exceptions_they_resemble(fake, session):
    fake.fail(methods.EXECUTE, "INVALID_ARGUMENT", "bad", "SHAPE")
    with pytest.raises(ValueError):
        session.execute([])
    with pytest.raises(LookupError):
        session.find("nothing")
