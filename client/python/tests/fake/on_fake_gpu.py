"""Runs the tests of a module without a GPU (gpu.py), as test_streams.py does:

    LD_LIBRARY_PATH=FOLDER python -m tests.fake.on_fake_gpu tests.fake.streams

FOLDER: the driver's. The layers meet it as CUDA's, so that this is a process of its own.
"""

from __future__ import annotations

import importlib
import sys


def main() -> int:
    for name, test in list(vars(importlib.import_module(sys.argv[1])).items()):
        if name.startswith("test_"):
            test()
            print("ok", name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
