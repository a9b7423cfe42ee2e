"""What a layer does with CUDA streams, on a driver and a torch that tests play (fake/on_fake_gpu.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemmd import native

BUILDS = Path(__file__).parents[4] / "build"
FOLDERS = [BUILDS / preset / "tests/client/armed/fake_cuda" for preset in ("cuda", "cpu")]
FOLDER = next((one for one in FOLDERS if one.exists()), FOLDERS[0])


# How many tests each has.
MODULES = {"streams": 8, "stream_graphs": 4, "stream_results": 5}


@pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())
@pytest.mark.skipif(not FOLDER.exists(), reason="gemmd_fake_cuda is not built")
@pytest.mark.parametrize("module", MODULES)
def test_layers_queue_their_work_on_streams(module):
    done = subprocess.run(
        [sys.executable, "-m", "tests.fake.on_fake_gpu", f"tests.fake.{module}"],
        cwd=Path(__file__).parents[2], env={**os.environ, "LD_LIBRARY_PATH": str(FOLDER)},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok test_") == MODULES[module]
