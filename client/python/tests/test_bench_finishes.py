"""What of bench/python/finishes.py needs no GPU."""

import subprocess
import sys

import pytest

from .conftest import BENCH

sys.path.insert(0, str(BENCH))
import finishes


def test_a_seed_draws_the_same_shapes_within_the_limits():
    shapes = finishes.drawn(60, 3, (5, 700))
    assert shapes == finishes.drawn(60, 3, (5, 700)) != finishes.drawn(60, 4, (5, 700))
    for shape in shapes:
        assert 5 <= shape.m <= 700 and shape.n % 8 == shape.k % 8 == 0
        assert 256 <= min(shape.n, shape.k) and max(shape.n, shape.k) <= 8192


def test_shapes_are_named_by_three_extents():
    assert finishes.named("64x4096x7168,1x256x8") == [(64, 4096, 7168), (1, 256, 8)]
    with pytest.raises(SystemExit):
        finishes.parser().parse_args(["--server", "unix:/x", "--shapes", "64x4096"])


def test_a_finish_is_held_against_the_plain_matmul_and_against_torch():
    def row(us, torch_us):
        return {"us": us, "torch_us": torch_us}

    names = [finish.name for finish in finishes._FINISHES]
    rows = [
        {"finishes": {name: row(20.0, 10.0) for name in names} | {"plain": row(10.0, 5.0)}},
        {"finishes": {name: row(80.0, 10.0) for name in names} | {"plain": row(10.0, 5.0)}},
    ]
    figures = finishes.summary(rows)
    assert figures["plain"]["time_over_plain"] == figures["plain"]["torch_over_plain"] == 1
    assert figures["C"] == {
        "time_over_plain": 4.0,
        "torch_over_plain": 2.0,
        "time_over_torch": 4.0,
        "longest_over_torch": 8.0,
    }


def test_without_torch_it_says_so():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.path.insert(0, {str(BENCH)!r})\nimport finishes\nsys.exit(finishes.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--server", "unix:/nowhere"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and "torch is not installed" in done.stderr
