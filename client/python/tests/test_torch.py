"""Layers and torch on the CPU: the op, its fake kernel, the compiler. Skips without torch."""

import numpy as np
import pytest

import gemmd
from gemmd import native

from .conftest import QUICK

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())


@pytest.fixture
def session(arming_fake):
    with (
        gemmd.Client(arming_fake.target, timeout_s=20, retry=QUICK) as client,
        client.session() as session,
    ):
        yield session


@pytest.fixture
def layer(session, random):
    return gemmd.Linear(session, random.standard_normal((24, 40), "f4"), quantize=None)


def test_a_compiled_call_gives_the_same_bits_as_an_eager_one(layer):
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: torch.relu(layer(x)) + 1, fullgraph=True, backend="aot_eager"
    )
    for rows in ((3,), (3,), (2, 5)):
        x = torch.randn(*rows, 40)
        assert torch.equal(compiled(x), torch.relu(layer(x)) + 1)


def test_the_op_passes_torchs_own_checks(layer):
    x = torch.randn(3, 40)
    arguments = (x, layer._traced.key, 24, torch.float32)
    torch.library.opcheck(
        torch.ops.gemmd.layer.default,
        arguments,
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.parametrize("out", [None, "f32", "bf16"])
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_the_fake_kernel_knows_the_results_type(session, random, kind, out):
    from torch._subclasses.fake_tensor import FakeTensorMode

    w = random.standard_normal((8, 16), "f4")
    layer = gemmd.Linear(session, w, quantize=None, out_dtype=out)
    x = torch.randn(2, 3, 16, dtype=getattr(torch, kind))
    y = layer(x)
    with FakeTensorMode() as mode:
        fake = layer._traced.call(mode.from_tensor(x))
    assert (fake.shape, fake.dtype) == (y.shape, y.dtype)


def test_a_layer_that_is_gone_says_so(session, random):
    layer = gemmd.Linear(session, random.standard_normal((8, 16), "f4"), quantize=None)
    key = layer._traced.key
    del layer
    with pytest.raises(RuntimeError, match="is gone"):
        torch.ops.gemmd.layer(torch.zeros(1, 16), key, 8, torch.float32)


def test_a_wrong_extent_is_refused_under_the_compiler_too(layer):
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="must be k=40"):
        compiled(torch.randn(3, 41))


def test_an_unquantised_layer_answers_in_its_weights_type(layer):
    x = torch.randn(4, 40).to(torch.bfloat16)
    y = layer(x)
    assert y.dtype == torch.float32
    w = torch.from_numpy(np.array(layer.buffer.download()))
    torch.testing.assert_close(y, x.float() @ w.T, rtol=1e-4, atol=1e-4)
