"""The usual mistakes with layers, and what their errors must tell: choices, limits or ways."""

import pickle

import numpy as np
import pytest

import gemmd

from .told import check_told

X = np.ones((3, 8), "f4")
W = np.ones((8, 5), "f4")
WORDS_OF_ACTIVATION = "none, relu, silu, gelu_tanh, gelu_erf, relu_squared"


def closed_layer(session):
    with gemmd.Linear(session, W.T, quantize=None) as layer:
        layer(X)
    layer(X)


# What is done to a session s, and words of the error in their order.
MISTAKES = {
    "a layer of a client": (
        lambda s: gemmd.Linear(s.client, W), TypeError, ["type Client", "client.session()"],
    ),
    "experts of a client": (
        lambda s: gemmd.MoE(s.client, np.ones((2, 8, 4), "f4"), np.ones((2, 4, 4), "f4"), top_k=1),
        TypeError, ["type Client", "client.session()"],
    ),
    "more experts a token than there are": (
        lambda s: gemmd.MoE(s, np.ones((2, 8, 8), "f4"), np.ones((2, 8, 4), "f4"), top_k=3),
        ValueError, ["top_k=3", "2 experts"],
    ),
    "a layer after its end": (
        closed_layer, gemmd.FailedPrecondition, ["Linear(8 -> 5", "closed", "make another"],
    ),
    "a layer's weight of three dimensions": (
        lambda s: gemmd.Linear(s, np.ones((2, 8, 5), "f4")), ValueError, ["(2, 8, 5)", "[n, k]"],
    ),
    "a layer's weight without a row": (
        lambda s: gemmd.Linear(s, np.ones((0, 5), "f4")),
        ValueError, ["(0, 5)", "[n, k] of 1 and more"],
    ),
    "a layer's weight of e5m2": (
        lambda s: gemmd.Linear(s, W.astype(gemmd.as_dtype("e5m2")), quantize=None),
        ValueError, ["float8_e5m2", 'quantize="fp8-block"'],
    ),
    "a layer of a buffer without its scales": (
        lambda s: (
            s.upload(W.astype(gemmd.as_dtype("e4m3"))).publish("plain"),
            gemmd.Linear(s, name="plain"),
        ),
        gemmd.FailedPrecondition, ["has no scales behind it", "128x128 [1, 1]", "one a row [8]"],
    ),
    "a layer of a vector": (
        lambda s: (s.upload(W[0]).publish("vector"), gemmd.Linear(s, name="vector")),
        gemmd.FailedPrecondition, ["is no matrix", "another name"],
    ),
    "an activation by its short name": (
        lambda s: gemmd.Linear(s, W, activation="gelu"), ValueError, ["did you mean 'gelu_"],
    ),
    "a layer without a weight": (lambda s: gemmd.Linear(s), ValueError, ["a weight, or the name"]),
    "a layer's activation": (
        lambda s: gemmd.Linear(s, W, activation="swish"),
        ValueError, ["activation 'swish'", WORDS_OF_ACTIVATION],
    ),
    "a layer's quantize": (
        lambda s: gemmd.Linear(s, W, quantize="fp8"),
        ValueError,
        ["quantize 'fp8'", "did you mean 'fp8-block'", "use one of fp8-block, fp8-row"],
    ),
    "experts that are no whole numbers": (
        lambda s: gemmd.MoE(s, np.ones((4, 16, 8), "f4"), np.ones((4, 8, 8), "f4"), top_k=1)(
            X, np.zeros((3, 1), "f4"), np.ones((3, 1), "f4")
        ),
        TypeError, ["experts has dtype float32", "whole numbers"],
    ),
    "a layer's x": (
        lambda s: gemmd.Linear(s, W, quantize=None)(np.ones((3, 9), "f4")),
        ValueError, ["(3, 9)", "k=5"],
    ),
    "a layer's split": (
        lambda s: gemmd.Linear(s, W, split="column"),
        ValueError, ["split 'column'", "did you mean 'columns'", "use one of columns, rows"],
    ),
    "a layer's devices without a split": (
        lambda s: gemmd.Linear(s, W, devices=["cpu:0"]), ValueError, ["give split="],
    ),
    "an MLP's layout": (
        lambda s: gemmd.MLP(s, W, W, layout="stacked"),
        ValueError, ["layout 'stacked'", "halves, interleaved"],
    ),
    "a layer pickled": (
        lambda s: pickle.dumps(gemmd.Linear(s, W, quantize=None)), TypeError, ["give it a name"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_told_with_the_way_out(session, what):
    check_told(session, *MISTAKES[what])
