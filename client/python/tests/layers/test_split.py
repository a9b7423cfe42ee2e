"""Linear(split=..) against the fake server: parts, programs, memory, names."""

import numpy as np
import pytest

import gemmd
from gemmd._layers import split_step
from gemmd._wire import methods

BOTH = ["cpu:0", "cpu:1"]
THREE = ["cpu:0", "cpu:1", "cpu:2"]


@pytest.fixture
def server(fake):  # calls of a split layer are not armed
    return fake


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def close(got, x, weight, bias=None, *, quantize="fp8-block"):
    wanted = x.astype(np.float64) @ weight.T.astype(np.float64)
    if bias is not None:
        wanted += bias
    tolerance = 0.15 if quantize else 1e-4
    np.testing.assert_allclose(
        np.asarray(got, np.float64), wanted, atol=tolerance * x.shape[-1] ** 0.5
    )


@pytest.mark.parametrize("quantize", ["fp8-block", None])
@pytest.mark.parametrize("devices", [["cpu:1"], BOTH, THREE])
@pytest.mark.parametrize("split", ["columns", "rows"])
def test_gives_the_product(session, split, devices, quantize):
    weight, x, bias = numbers(456, 392), numbers(7, 392, seed=1), numbers(456, seed=2)
    with gemmd.Linear(
        session, weight, bias=bias, split=split, devices=devices, quantize=quantize
    ) as layer:
        for _ in range(2):
            y = layer(x)
            assert y.shape == (7, 456) and y.dtype == np.float32
            close(y, x, weight, bias, quantize=quantize)
        assert y.report.device_seconds > 0
        assert (layer.in_features, layer.out_features) == (392, 456)
        assert layer.devices == tuple(devices)
        assert repr(layer).endswith(f"{split} on {', '.join(devices)})")


@pytest.mark.parametrize("split", ["columns", "rows"])
def test_large_calls_go_by_upload_and_download(fake, session, split):
    weight, x = numbers(256, 640), numbers(600, 640, seed=1)
    with gemmd.Linear(session, weight, split=split, devices=BOTH) as layer:
        close(layer(x), x, weight)
        (ops,) = fake.plans.values()
        assert not [op for op in ops if op.WhichOneof("kind") in ("write", "read")]


def test_shapes_types_and_activations_are_those_of_linear(session):
    weight, x = numbers(256, 128), numbers(2, 3, 128, seed=1)
    layer = gemmd.Linear(
        session, weight, split="columns", devices=BOTH, activation="relu", out_dtype="bf16"
    )
    y = layer(x)
    assert y.shape == (2, 3, 256) and y.dtype == gemmd.bfloat16
    assert float(np.asarray(y, np.float32).min()) == 0
    with pytest.raises(ValueError, match="the last extent must be k=128"):
        layer(numbers(2, 64))


def test_torch_tensors_go_and_come(session):
    torch = pytest.importorskip("torch")
    weight, x = (torch.from_numpy(numbers(rows, 256, seed=rows)) for rows in (256, 5))
    for split in ("columns", "rows"):
        y = gemmd.Linear(session, weight, split=split, devices=BOTH)(x)
        assert isinstance(y, torch.Tensor) and y.shape == (5, 256)
        close(y.numpy(), x.numpy(), weight.numpy())


def test_rows_add_up_in_the_devices_order(fake, session):
    layer = gemmd.Linear(session, numbers(256, 384), split="rows", devices=BOTH)
    layer(numbers(4, 384))
    (ops,) = fake.plans.values()
    kinds = [op.WhichOneof("kind") for op in ops]
    assert kinds == [
        "write", "write", "quantize", "quantize",
        "matmul", "matmul",  # for the other device, where they are stored
        "matmul", "matmul",  # each device's own
        "combine", "combine", "read", "read",
    ]  # fmt: skip


def test_columns_bring_x_once(fake, session):
    layer = gemmd.Linear(session, numbers(384, 256), split="columns", devices=THREE)
    layer(numbers(4, 256))
    (ops,) = fake.plans.values()
    kinds = [op.WhichOneof("kind") for op in ops]
    assert kinds[:3] == ["write", "copy", "copy"] and kinds.count("matmul") == 3


def test_parts_are_published_and_found(fake, session):
    weight, x = numbers(256, 256), numbers(3, 256, seed=1)
    for split in ("columns", "rows"):
        first = gemmd.Linear(session, weight, split=split, devices=BOTH, name="block.0/up")
        close(first(x), x, weight)
        made = []
        other = gemmd.Linear(
            session, lambda made=made: made.append(1), split=split, devices=BOTH, name="block.0/up"
        )
        assert not made
        close(other(x), x, weight)
        assert '"block.0/up"(256 -> 256' in repr(other)
        other.close()
        first.unpublish()
        with pytest.raises(gemmd.NotFound):
            gemmd.Linear(session, split=split, devices=BOTH, name="block.0/up")


def test_a_weight_in_fp8_keeps_its_scales(session):
    values = (numbers(384, 384) * 4).astype(gemmd.float8_e4m3fn)
    scales = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    weight = values.astype(np.float32) * np.kron(scales, np.ones((128, 128), np.float32))
    x = numbers(3, 384, seed=1)
    for split in ("columns", "rows"):
        layer = gemmd.Linear(session, values, scales=scales, split=split, devices=BOTH)
        got = np.asarray(layer(x))
        wanted = x @ weight.T
        assert np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max()


def test_memory_goes_with_the_layer(fake, session):
    before = len(fake.machine.memory)
    layer = gemmd.Linear(session, numbers(256, 256), split="rows", devices=BOTH)
    for rows in range(1, 30):
        layer(numbers(rows, 256))
    assert len(fake.plans) <= 17
    layer.close()
    assert len(fake.machine.memory) == before and not fake.plans


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"split": "diagonal"}, "use one of columns, rows"),
        ({"split": "columns", "devices": []}, "one at least"),
        ({"split": "columns", "devices": ["cpu:0", "cpu:0"]}, "different ones"),
        ({"split": "columns", "devices": THREE}, "n=256 has 2 blocks of 128 for 3 devices"),
        ({"split": "rows", "devices": THREE}, "k=256 has 2 blocks of 128 for 3 devices"),
        ({"split": "rows", "devices": BOTH, "activation": "relu"}, "apply it to the result"),
        ({"devices": BOTH}, 'give split="columns" or "rows"'),
    ],
)
def test_what_cannot_be_split_is_refused(fake, session, arguments, words):
    with pytest.raises(ValueError, match=words):
        gemmd.Linear(session, numbers(256, 256), **arguments)
    assert not fake.machine.memory


def test_without_a_weight_or_a_name_there_is_nothing_to_split(session):
    with pytest.raises(ValueError, match="a weight, or the name of a published one"):
        gemmd.Linear(session, split="columns", devices=BOTH)


def test_bounds_are_blocks_and_the_first_have_more():
    assert split_step.bounds(1024, 2, "n") == [0, 512, 1024]
    assert split_step.bounds(1000, 2, "n") == [0, 512, 1000]
    assert split_step.bounds(640, 3, "n") == [0, 256, 512, 640]


@pytest.mark.parametrize("split", ["columns", "rows"])
def test_at_the_limit_of_plans_one_of_its_own_is_given_up(fake, session, split):
    weight = numbers(256, 256)
    with gemmd.Linear(session, weight, split=split, devices=BOTH) as layer:
        layer(numbers(1, 256))
        before = len(session.buffers())
        fake.fail(methods.CREATE_PLAN, "RESOURCE_EXHAUSTED", reason="PLAN_LIMIT")
        x = numbers(2, 256)
        close(layer(x), x, weight)
        assert len(fake.plans) == 1 and len(session.buffers()) == before
        fake.fail(methods.CREATE_PLAN, "RESOURCE_EXHAUSTED", reason="PLAN_LIMIT", times=2)
        with pytest.raises(gemmd.ResourceExhausted):
            layer(numbers(3, 256))
        close(layer(x), x, weight)


def test_a_closed_one_says_so(session):
    layer = gemmd.Linear(session, numbers(256, 128), split="columns", devices=BOTH)
    layer(numbers(1, 128))
    layer.close()
    with pytest.raises(gemmd.FailedPrecondition, match="is closed"):
        layer(numbers(1, 128))
