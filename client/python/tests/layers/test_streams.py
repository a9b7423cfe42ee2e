"""What a layer does with CUDA streams, on a driver and a torch that tests play (fake/streams.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemmd import native

BUILDS = Path(__file__).parents[4] / "build"
FOLDERS = [BUILDS / preset / "tests/client/armed/fake_cuda" for preset in ("cuda", "cpu")]
FOLDER = next((one for one in FOLDERS if one.exists()), FOLDERS[0])


@pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())
@pytest.mark.skipif(not FOLDER.exists(), reason="gemmd_fake_cuda is not built")
def test_layers_queue_their_work_on_streams():
    done = subprocess.run(
        [sys.executable, "-m", "tests.fake.streams"],
        cwd=Path(__file__).parents[2], env={**os.environ, "LD_LIBRARY_PATH": str(FOLDER)},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok test_") == 17
