"""A checkpoint of FP8 with one scale a row ("FP8-dynamic"), written by hand: gemmctl and the Python client load the same
weights from it, and what they multiply is what numpy says.
"""

import json
import subprocess

import gemmd
import ml_dtypes
import numpy as np
import pytest

ROWS, COLUMNS = 160, 200


def write(path, tensors):
    """tensors: name to dtype's name and array."""
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture
def model(tmp_path):
    """Its file, and the matrices that it means, in float64."""
    random = np.random.default_rng(7)
    scales = {
        "a": ("BF16", random.uniform(0.001, 0.1, (ROWS, 1)).astype(ml_dtypes.bfloat16)),
        "b": ("F16", random.uniform(0.001, 0.1, ROWS).astype("f2")),
        "c": ("F64", random.uniform(0.001, 0.1, (ROWS, 1))),
    }
    tensors, means = {}, {}
    for name, (dtype, array) in scales.items():
        values = (random.standard_normal((ROWS, COLUMNS)) * 60).astype(ml_dtypes.float8_e4m3fn)
        tensors[f"{name}.weight"] = ("F8_E4M3", values)
        tensors[f"{name}.weight_scale"] = (dtype, array)
        means[name] = values.astype("f8") * array.astype("f4").astype("f8").reshape(ROWS, 1)
    means["head"] = random.standard_normal((ROWS, COLUMNS)).astype("f4")
    tensors["head.weight"] = ("F32", means["head"])
    path = tmp_path / "model.safetensors"
    write(path, tensors)
    return path, means


def by_row(x):
    """As E4M3 with one scale a row has it."""
    scales = np.abs(x).max(1, keepdims=True) / 448
    return (x / scales).astype(ml_dtypes.float8_e4m3fn).astype("f8") * scales


def test_both_clients_load_and_multiply_the_same(gemmctl, daemon, model, tmp_path):
    path, means = model

    def ctl(*args, status=0):
        done = subprocess.run([gemmctl, *args, "--server", daemon], capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout or done.stderr

    def load(prefix, *more):
        return json.loads(ctl("load", str(path), "--prefix", prefix, "--json", *more))

    assert load("cli", "--quantize", "fp8-row")["loaded"] == 4
    assert load("cli", "--quantize", "fp8-row")["moved_bytes"] == 0
    with gemmd.Client(daemon) as client, client.session() as session:
        found = session.load(path, prefix="cli", quantize="fp8-row")
        assert (found.moved, found.found) == (0, 4)
        made = session.load(path, prefix="python", quantize="fp8-row")
        assert made.moved == 4
    assert load("python", "--quantize", "fp8-row")["moved_bytes"] == 0
    assert "other content" in ctl("load", str(path), "--prefix", "cli", "--quantize", "fp8-block", status=5)

    x = np.random.default_rng(8).standard_normal((16, COLUMNS)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    for name, w in means.items():
        exact = by_row(x.astype("f8")) @ (by_row(w.astype("f8")) if name == "head" else w).T
        published = f"cli/{name}.weight"
        with gemmd.Client(daemon) as client, client.session() as session:
            y = np.asarray(gemmd.Linear(session, name=published)(x))
        assert np.linalg.norm(y - exact) < 2e-3 * np.linalg.norm(exact)
        out = tmp_path / f"{name}.npy"
        line = ("matmul", str(tmp_path / "x.npy"), f"@{published}", "--nt", "--quantize", "fp8-row", "--out-dtype", "f32")
        told = json.loads(ctl(*line, "--verify", "-o", str(out), "--json"))
        assert told["verify"]["ok"] and told["verify"]["relative_error"] < 1e-5
        np.testing.assert_allclose(np.load(out), y, rtol=1e-4, atol=1e-4 * np.abs(y).max())
    said = ctl("matmul", str(tmp_path / "x.npy"), "@cli/a.weight", "--nt", status=2)
    assert "--quantize fp8-row" in said
