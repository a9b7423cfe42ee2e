"""`gemmctl load` on terminals of several widths: what stays on the screen, letter by letter."""

import json
import re

import pytest
from terminal import Program


def steady(text):
    """Without times and rates."""
    text = re.sub(r"\d+\.\d+ GB/s", "0.00 GB/s", text)
    return re.sub(r"\d+\.\d+ (us|ms|s)\b", "0.00 ms", text)


@pytest.fixture
def model(tmp_path):
    """Two matrices and a bias, of zeros."""
    header, size = {}, 0
    for name, shape in {"layer.0.w": (256, 384), "layer.1.w": (384, 256), "layer.1.b": (384,)}.items():
        bytes_ = 4 * (shape[0] if len(shape) == 1 else shape[0] * shape[1])
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [size, size + bytes_]}
        size += bytes_
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    return path


def load(gemmctl, daemon, model, prefix, columns):
    command = [gemmctl, "load", str(model), "--prefix", prefix, "--quantize", "fp8-block", "--server", daemon]
    with Program(command, columns) as program:
        assert program.end() == 0
        return steady(program.screen.text())


@pytest.mark.parametrize("columns", [80, 120])
def test_load(gemmctl, daemon, model, picture, columns):
    shown = [load(gemmctl, daemon, model, prefix, columns) for prefix in ("m", "m", "m@2")]
    picture(f"load_{columns}", "\n".join(shown))
    assert max(map(len, "".join(shown).splitlines())) < columns

