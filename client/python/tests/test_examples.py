"""The example and the bench against the fake: that they run, and that the example notices a
loss.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from .conftest import BENCH

sys.path.insert(0, str(BENCH))
sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "digits"))
import calls

import digits
import network


@pytest.fixture(scope="module")
def fitted():
    learn, held_out = network.load()
    return network.fit(learn, steps=60), held_out


def test_the_data_are_the_1797_images_split_without_overlap():
    learn, held_out = network.load()
    assert (len(learn.images), len(held_out.images)) == (1200, 597)
    assert learn.images.shape[1] == 64 and learn.images.max() == 1.0
    assert sorted(set(held_out.digits)) == list(range(10))


def test_fitting_is_deterministic_and_the_network_generalises(fitted):
    net, held_out = fitted
    again = network.fit(network.load()[0], steps=60)
    np.testing.assert_array_equal(net.w1, again.w1)
    assert np.mean(net.logits(held_out.images).argmax(axis=1) == held_out.digits) > 0.95


def test_fp8_and_float32_agree_through_the_server(session, fitted, monkeypatch):
    monkeypatch.setattr(digits, "RUNS", 1)
    net, held_out = fitted
    exact = net.logits(held_out.images)
    resident = digits.Resident(session, net, len(held_out.images))
    wide = digits.measure(resident.float32(), held_out, exact)
    narrow = digits.measure(resident.fp8(), held_out, exact)
    assert wide["relative_error"] < 1e-5 < narrow["relative_error"] < 0.1
    assert narrow["accuracy"] > 0.95 and abs(narrow["accuracy"] - wide["accuracy"]) < 0.01


@pytest.mark.parametrize(("fp8", "status"), [(0.97, 0), (0.951, 0), (0.94, 1)])
def test_the_example_fails_when_fp8_loses_more_than_a_point(
    fake, fitted, monkeypatch, capsys, fp8, status
):
    rows = iter([{"accuracy": 0.96}, {"accuracy": fp8}])
    monkeypatch.setattr(digits, "measure", lambda *_: next(rows))
    monkeypatch.setattr(network, "fit", lambda _: fitted[0])
    monkeypatch.setattr(sys, "argv", ["digits.py", "--server", fake.target, "--json"])
    assert digits.main() == status
    assert json.loads(capsys.readouterr().out)["fp8"]["accuracy"] == fp8


def test_the_example_says_when_there_is_no_server(tmp_path, fitted, monkeypatch, capsys):
    monkeypatch.setattr(network, "fit", lambda _: fitted[0])
    monkeypatch.setattr(sys, "argv", ["digits.py", "--server", f"unix:{tmp_path}/none"])
    assert digits.main() == 2
    assert "digits:" in capsys.readouterr().err


def test_the_bench_measures_calls_queues_and_both_ways_of_bytes(sharing_fake, capsys):
    arguments = ["--server", sharing_fake.target, "--json", "--count", "64", "--mib", "1"]
    assert calls.main(arguments) == 0
    figures = json.loads(capsys.readouterr().out)
    rates = {"queue_batches_per_s", "aio_queue_batches_per_s", "aio_executes_per_s"}
    rates |= {
        f"{way}_{path}_gb_per_s" for way in ("upload", "download") for path in ("grpc", "shm")
    }
    rates |= {f"execute_inline_{path}_p50_us" for path in ("grpc", "shm")}
    assert all(figures[name] > 0 for name in rates)
    assert 0 < figures["execute_tiny_p50_us"] <= figures["execute_tiny_p99_us"]
