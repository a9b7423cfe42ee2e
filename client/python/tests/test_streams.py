"""What a layer does with CUDA streams, on a driver and a torch that tests play (fake/gpu.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemmd import native

FOLDER = Path(__file__).parents[3] / "build" / "cpu" / "tests" / "client" / "armed" / "fake_cuda"


@pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())
@pytest.mark.skipif(not FOLDER.exists(), reason="client_armed_stream_test is not built")
def test_layers_queue_their_work_on_streams():
    done = subprocess.run(
        [sys.executable, "-m", "tests.fake.gpu"],
        cwd=Path(__file__).parents[1], env={**os.environ, "LD_LIBRARY_PATH": str(FOLDER)},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok test_") == 6
