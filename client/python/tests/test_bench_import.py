"""What of bench/python/imports.py needs no GPU."""

import subprocess
import sys

from .conftest import BENCH

sys.path.insert(0, str(BENCH))
import imports

PAGE = """\
# HELP gemmd_transfer_bytes_total Between clients and buffers
# TYPE gemmd_transfer_bytes_total counter
gemmd_transfer_bytes_total{device="cuda:0",dir="in",path="grpc"} 4096
gemmd_transfer_bytes_total{device="cuda:0",dir="out",path="shm"} 2.5e3

gemmd_transfer_bytes_total_of_another 7
"""


def test_a_counter_is_summed_over_its_labels():
    assert imports.total_of(PAGE, "gemmd_transfer_bytes_total") == 6596
    assert imports.total_of(PAGE, "gemmd_not_there_total") == 0


def test_without_torch_it_says_so():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.path.insert(0, {str(BENCH)!r})\nimport imports\nsys.exit(imports.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--server", "unix:/nowhere", "--metrics", "http://nowhere"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and "torch is not installed" in done.stderr
