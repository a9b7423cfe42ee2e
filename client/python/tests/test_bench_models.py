"""What of bench/python/models.py, generate.py and caches.py needs no GPU."""

import sys

import pytest

from .conftest import BENCH

sys.path.insert(0, str(BENCH))
import caches
import generate
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


def test_a_row_of_tokens_is_held_against_torch():
    us = {way.name: one for way, one in zip(generate.WAYS, [8.0, 4.0, 6.0, 1.0, 32.0, 7.0], strict=True)}
    told = generate.shown({"model": "a", "layers": 3, "batch": 4, "prompt": 9, "us": us})
    assert told == (
        "a, 3 layers, 4 sequences behind 9 tokens: torch, dynamic 8 us a token;"
        " torch, static 0.50; gemmd, dynamic 0.75; gemmd, static 0.12;"
        " torch, once 4.00; gemmd, once 0.88"
    )


def test_models_that_decode_are_chosen_without_a_word():
    given = generate.parser().parse_args(["--server", "unix:/x"])
    assert given.ways == generate.WAYS
    assert given.batches == [1, 32] and "Qwen3-8B" in [one.name for one in given.models]


def test_ways_are_chosen_by_name(capsys):
    def ways(text):
        return generate.parser().parse_args(["--server", "unix:/x", "--ways", text]).ways

    assert [way.name for way in ways("gemmd, once; torch, once")] == ["gemmd, once", "torch, once"]
    with pytest.raises(SystemExit):
        ways("torch, twice")
    assert "no way is named 'torch, twice'; they are: torch, dynamic;" in capsys.readouterr().err


def test_a_cache_is_told_by_its_extents():
    assert caches.Shape.of("2x8x4x512") == (2, 8, 4, 512)
    with pytest.raises(SystemExit):
        caches.main(["--shapes", "2x8"])
