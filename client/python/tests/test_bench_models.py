"""What of bench/python/models.py needs no GPU."""

import sys

import pytest

from .conftest import BENCH

sys.path.insert(0, str(BENCH))
import models


def test_models_are_chosen_by_patterns():
    names = [one.name for one in models.chosen("Qwen*,*BERT*")]
    assert names == ["Qwen3-30B-A3B", "Qwen3-8B", "ModernBERT-large"]
    with pytest.raises(SystemExit):
        models.parser().parse_args(["--server", "unix:/x", "--models", "GPT-9"])


def test_a_row_is_held_against_torch():
    rows = [
        {"model": "a", "inputs": "decode", "us": {"torch": 10.0, "compile": 5.0}, "graph_us": {}},
        {
            "model": "b",
            "inputs": "decode",
            "us": {"torch": 10.0, "compile": 20.0},
            "graph_us": {"torch": 8.0, "compile": 2.0},
        },
    ]
    assert models.summary(rows) == pytest.approx({"compile": 1.0, "compile, as graphs": 0.25})
    assert models.shown(rows[1]) == (
        "b, decode; called torch 10 us, compile 2.00; as a graph torch 8 us, compile 0.25"
    )
