"""What of `gemmd.bench_import` needs no GPU."""

import subprocess
import sys

from gemmd import bench_import

PAGE = """\
# HELP gemmd_transfer_bytes_total Between clients and buffers
# TYPE gemmd_transfer_bytes_total counter
gemmd_transfer_bytes_total{device="cuda:0",dir="in",path="grpc"} 4096
gemmd_transfer_bytes_total{device="cuda:0",dir="out",path="shm"} 2.5e3

gemmd_transfer_bytes_total_of_another 7
"""


def test_a_counter_is_summed_over_its_labels():
    assert bench_import.total_of(PAGE, "gemmd_transfer_bytes_total") == 6596
    assert bench_import.total_of(PAGE, "gemmd_not_there_total") == 0


def test_without_torch_it_says_so():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from gemmd import bench_import\nsys.exit(bench_import.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--server", "unix:/nowhere", "--metrics", "http://nowhere"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and "torch is not installed" in done.stderr
