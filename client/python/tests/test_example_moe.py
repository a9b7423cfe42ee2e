"""The example of a layer of experts, against the fake."""

import importlib.util
import json
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[1] / "examples" / "moe" / "moe.py"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("moe_example", PLACE)
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("model", ["mixtral", "deepseek"])
def test_a_layer_of_either_model_keeps_what_fp8_can(fake, example, capsys, model):
    small = ["--hidden", "128", "--inner", "64", "--tokens", "5", "--calls", "1", "--json"]
    assert example.main(["--server", fake.target, "--model", model, *small]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0.005 < found["error"] < 0.08 and found["tokens"] == 5


def test_a_loss_is_noticed(fake, example, monkeypatch):
    monkeypatch.setattr(example, "LARGEST_ERROR", 1e-6)
    small = ["--hidden", "128", "--inner", "64", "--tokens", "5", "--calls", "0"]
    assert example.main(["--server", fake.target, *small]) == 1
