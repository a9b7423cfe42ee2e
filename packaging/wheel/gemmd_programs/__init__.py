"""The programs that a wheel of gemmd brings: gemmd, gemmctl and gemmd_bench, with their libraries beside them.

Apart from the package `gemmd`, so that a program starts without the client's imports.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn


def program(name: str) -> Path:
    """Where a program of this wheel lies, for who starts it from Python."""
    return Path(__file__).resolve().parent / "bin" / name


def _become(name: str) -> NoReturn:
    path = str(program(name))
    os.execv(path, [path, *sys.argv[1:]])


def gemmd() -> NoReturn:
    _become("gemmd")


def gemmctl() -> NoReturn:
    _become("gemmctl")


def gemmd_bench() -> NoReturn:
    _become("gemmd_bench")
