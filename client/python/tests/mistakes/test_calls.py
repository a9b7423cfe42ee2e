"""The usual mistakes with matmuls, sessions and clients, and what their errors must tell."""

import pickle

import numpy as np
import pytest

import gemmd

from .told import check_told

X = np.ones((3, 8), "f4")
W = np.ones((8, 5), "f4")
WORDS_OF_QUANTIZE = "fp8-block, fp8-row, fp8-tensor, int8-block, int8-row, int8-tensor"
WORDS_OF_ACTIVATION = "none, relu, silu, gelu_tanh, gelu_erf, relu_squared"


def closed_client(session):
    with gemmd.Client(session.client.transport.target) as client:
        other = client.session()
    other.buffers()


def waiting_closed_client(session):
    with gemmd.Client(session.client.transport.target) as client:
        pass
    client.wait_ready(1)


# What is done to a session s, and words of the error in their order.
MISTAKES = {
    "quantize, a word cut short": (
        lambda s: s.matmul(X, W, quantize="fp8"),
        ValueError, ["quantize 'fp8'", "use one of " + WORDS_OF_QUANTIZE],
    ),
    "quantize, underscores": (
        lambda s: s.matmul(X, W, quantize="fp8_block"),
        ValueError, ["did you mean 'fp8-block'"],
    ),
    "quantize, of another type": (
        lambda s: s.matmul(X, W, quantize=8), ValueError, ["quantize 8", "fp8-block"],
    ),
    "activation that is none": (
        lambda s: s.matmul(X, W, activation="gelu"),
        ValueError, ["activation 'gelu'", "use one of " + WORDS_OF_ACTIVATION],
    ),
    "alpha of several numbers": (
        lambda s: s.matmul(X, W, alpha=X), TypeError, ["alpha has type ndarray", "give a number"],
    ),
    "elements that are masked": (
        lambda s: s.matmul(np.ma.masked_less(X, 2), s.upload(W)),
        TypeError, ["masked elements", "array.filled(0)"],
    ),
    "an option misspelt": (
        lambda s: s.matmul(X, W, quantise="fp8-block"),
        TypeError, ["no option 'quantise'", "did you mean 'quantize'"],
    ),
    "an option of torch": (
        lambda s: s.matmul(X, W, dtype="f32"),
        TypeError, ["no option 'dtype'", "did you mean 'out_dtype'"],
    ),
    "an option of nobody": (
        lambda s: s.matmul(X, W, color=1), TypeError, ["no option 'color'", "quantize, bias"],
    ),
    "out_dtype that is none": (
        lambda s: s.matmul(X, W, out_dtype="f64"), TypeError, ["'f64'", "f32, bf16, f16"],
    ),
    "out_dtype that numpy does not know": (
        lambda s: s.matmul(X, W, out_dtype="bfloat"), TypeError, ["'bfloat'", "f32, bf16, f16"],
    ),
    "k differs": (lambda s: s.matmul(X, W.T), ValueError, ["3, 8]", "5, 8]", "k differs"]),
    "a vector": (lambda s: s.matmul(X[0], W), ValueError, ["a has shape (8,)", "a matrix"]),
    "a list": (
        lambda s: s.matmul([[1.0]], W),
        TypeError, ["list", "numpy.asarray", "session.upload(array)"],
    ),
    "an array to write to": (
        lambda s: s.matmul(X, W, out=X), TypeError, ["ndarray is no tensor", "session.upload"],
    ),
    "a number": (
        lambda s: s.matmul(np.float32(1), W), TypeError, ["float32 is neither an array"],
    ),
    "integers": (
        lambda s: s.matmul(X.astype("i8"), W),
        TypeError, ["a has dtype int64", "a.astype('float32')"],
    ),
    "integers of 32 bits": (
        lambda s: s.matmul(X.astype("i4"), W), TypeError, ["int32, which is not multiplied"],
    ),
    "booleans": (lambda s: s.matmul(X > 0, W), TypeError, ["a has dtype bool", "float32"]),
    "complex numbers": (lambda s: s.matmul(X + 1j, W), TypeError, ["a has dtype complex"]),
    "int8 by float32": (
        lambda s: s.matmul(X.astype("int8"), W),
        TypeError, ["int8 multiplies int8 alone", "convert the other side first"],
    ),
    "float32 by int8": (
        lambda s: s.matmul(X, W.astype("int8")),
        TypeError, ["b has dtype int8", "convert b first, b.astype('float32')"],
    ),
    "alpha that is no number": (
        lambda s: s.matmul(X, W, alpha="2"), TypeError, ["alpha has type str; give a number"],
    ),
    "a time that is none": (
        lambda s: s.client.session(ttl_s="1 h"), TypeError, ["ttl_s has type str; give a number"],
    ),
    "a time that is no number": (
        lambda s: s.client.session(ttl_s=float("nan")), ValueError, ["ttl_s=nan is not within 0"],
    ),
    "a time without end": (
        lambda s: s.client.session(grace_s=float("inf")), ValueError, ["grace_s=inf", "within 0"],
    ),
    "quantised the way that only a is": (
        lambda s: s.matmul(X, s.operand((5, 8), gemmd.Granularity.BLOCK_1X128).T),
        ValueError, ["BLOCK_1X128 is for a", "BLOCK_128X128 for b"],
    ),
    "a number submitted": (
        lambda s: s.queue().submit([7]), TypeError, ["ops[0] has type int", "gemmd.read"],
    ),
    "a client after its end": (
        closed_client, gemmd.Cancelled, ["the client is closed", "make another"],
    ),
    "priority that is none": (
        lambda s: s.execute([], priority="urgent"),
        ValueError, ["priority 'urgent'", "use one of normal, high, low"],
    ),
    "report that is none": (
        lambda s: s.execute([], report="all"),
        ValueError, ["report 'all'", "use one of full, summary, none"],
    ),
    "arrays of four extents": (
        lambda s: s.matmul(np.ones((2, 3, 4, 5), "f4"), np.ones((2, 3, 5, 4), "f4")),
        ValueError, ["(2, 3, 4, 5)", "1 to 3 extents", "reshape it"],
    ),
    "an option of explain misspelt": (
        lambda s: s.client.explain(8, 8, 8, outdtype="f32"),
        TypeError, ["no option 'outdtype'", "did you mean 'out_dtype'"],
    ),
    "explain's quantize": (
        lambda s: s.client.explain(8, 8, 8, quantize="fp8"), ValueError, [WORDS_OF_QUANTIZE],
    ),
    "explain's groups left out": (
        lambda s: s.client.explain(8, 8, 8, layout="offsets"), TypeError, ["give groups, too"],
    ),
    "shared_memory that is none": (
        lambda s: s.client.session(shared_memory="on"),
        ValueError, ["shared_memory 'on'", "auto, off, require"],
    ),
    "a closed client that waits": (
        waiting_closed_client,
        gemmd.Cancelled, ["the client is closed"],
    ),
    "a session pickled": (lambda s: pickle.dumps(s), TypeError, ["Session(s-", "open a session"]),
    "a client pickled": (lambda s: pickle.dumps(s.client), TypeError, ["gemmd.connect()"]),
    "one server where several are wanted": (
        lambda s: gemmd.Replicas("gemm-0:8470", lambda session: session),
        TypeError, ["give a list", "['gemm-0:8470']"],
    ),
    "an option of Replicas misspelt": (
        lambda s: gemmd.Replicas(["gemm-0:8470"], lambda session: session, timeout=3),
        TypeError, ["no option 'timeout'", "did you mean 'timeout_s'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_told_with_the_way_out(session, what):
    check_told(session, *MISTAKES[what])
