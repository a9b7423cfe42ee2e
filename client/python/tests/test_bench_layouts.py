"""What of bench/python/layouts.py needs no GPU."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from .conftest import BENCH

sys.path.insert(0, str(BENCH))
import layouts


def test_every_flag_is_known():
    options = layouts.parser().parse_args(["--server", "unix:/x", "--pool", "--dtype", "float32"])
    assert options.pool and options.suite == "odd" and options.count == 64 and options.json is None
    assert not layouts.parser().parse_args(["--server", "unix:/x"]).pool


@pytest.mark.parametrize("suite", ["odd", "batched", "plain"])
def test_a_seed_draws_the_same_shapes_within_the_limits(suite):
    shapes = layouts.drawn(suite, 50, 7)
    assert shapes == layouts.drawn(suite, 50, 7) != layouts.drawn(suite, 50, 8)
    assert len(shapes) == 50 and {shape.layout for shape in shapes} == {"nt", "nn", "tn", "tt"}
    for shape in shapes:
        assert 1e6 <= shape.flops() <= 4e11 and shape.elements() <= 2e8
        rests = {extent % 8 for extent in (shape.m, shape.n, shape.k)}
        if suite == "odd":
            assert all(rest % 2 for rest in rests)
        else:
            assert shape.n % 8 == shape.k % 8 == 0 and (suite == "plain" or shape.m % 8 == 0)


def test_kernels_are_those_that_take_a_matrix_and_divide_k_where_tiles_are_few():
    taken = ["sm90_bf16_tiled_m128n128s6", "sm90_bf16_skinny_m16n64k128s4", "sm90_bf16_x_k4"]
    pool = [*taken, "sm90_any_gemm", "sm90_bf16_refused"]
    candidates = [SimpleNamespace(kernel=name, feasible="refused" not in name) for name in pool]
    client = SimpleNamespace(explain=lambda *_, **__: SimpleNamespace(candidates=candidates))
    few, many = (layouts.Shape(batch, 128, 128, 64, "nt") for batch in (132, 133))
    assert layouts.kernels_for(client, few, "bfloat16") == taken
    assert layouts.kernels_for(client, many, "bfloat16") == taken[:2]


def test_without_torch_it_says_so():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.path.insert(0, {str(BENCH)!r})\nimport layouts\nsys.exit(layouts.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--server", "unix:/nowhere"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and "torch is not installed" in done.stderr
