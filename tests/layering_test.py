#!/usr/bin/env python3
"""layering.py's own test: a planted bad include of each kind must be found, good ones must not."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent

# path, include line, allowed
CASES = [
    ("kernels/op.cc", '"kernels/tensor.h"', True),
    ("kernels/op.cc", '"absl/status/status.h"', True),
    ("kernels/op.cc", "<cuda_runtime_api.h>", False),
    ("kernels/op.cc", "<grpcpp/grpcpp.h>", False),
    ("kernels/op.h", '"google/protobuf/message.h"', False),
    ("kernels/cpu/cpu_backend.cc", '"server/engine/observe/log.h"', False),
    ("kernels/cpu/cpu_backend.cc", '"gemmd/v1/types.pb.h"', False),
    ("kernels/cpu/cpu_backend.cc", '"kernels/cuda/device.h"', False),
    ("kernels/cuda/gemm_fp8.cu", "<cstdint>", True),
    ("kernels/cuda/gemm_fp8.cu", "<cuda.h>", True),
    ("kernels/cuda/gemm_fp8.cu", '"kernels/cuda/ptx/wgmma.cuh"', True),
    ("kernels/cuda/gemm_fp8.cu", "<string>", False),
    ("kernels/cuda/gemm_fp8.cu", "<vector>", False),
    ("kernels/cuda/gemm_fp8.cu", '"absl/status/status.h"', False),
    ("kernels/cuda/cuda_backend.cc", "<cuda_runtime_api.h>", True),
    ("kernels/cuda/cuda_backend.cc", '"kernels/cuda/run/cuda_stream.h"', True),
    ("kernels/cuda/run/cuda_program.h", '"kernels/cuda/grouped/grouped_op.h"', True),
    ("kernels/cuda/sm90/gemm.cc", '"kernels/cuda/sm90/launch/grouped.h"', True),
    ("kernels/cuda/sm90/launch/grouped.h", '"kernels/cuda/matmul/legality.h"', False),
    ("kernels/cuda/ops/gated.cu", '"kernels/cuda/run/run_stamps.h"', False),
    ("kernels/cuda/cuda_backend.cc", '"server/engine/observe/log.h"', False),
    ("server/engine/sessions/buffer.cc", '"kernels/backend.h"', True),
    ("server/engine/sessions/buffer.cc", '"kernels/cpu/cpu_backend.h"', False),
    ("server/engine/sessions/buffer.cc", "<grpcpp/server.h>", False),
    ("server/engine/sessions/buffer.cc", '"gemmd/v1/types.pb.h"', False),
    ("server/engine/armed/armed_region.cc", '"gemmd/v1/armed_region.h"', True),
    ("server/engine/sessions/buffer.cc", "<cuda_runtime_api.h>", False),
    ("server/engine/sessions/buffer.cc", '"server/service/wire/convert.h"', False),
    ("server/config/load.cc", '"gemmd/v1/config.pb.h"', True),
    ("server/config/load.cc", "<google/protobuf/text_format.h>", True),
    ("server/config/load.cc", '"gemmd/v1/compute_service.grpc.pb.h"', False),
    ("server/config/load.cc", "<grpcpp/grpcpp.h>", False),
    ("server/service/wire/convert.cc", '"gemmd/v1/compute_service.grpc.pb.h"', True),
    ("server/service/wire/convert.cc", "<cuda.h>", False),
    ("server/service/wire/convert.cc", '"kernels/cpu/cpu_backend.h"', False),
    ("server/main.cc", '"kernels/cpu/cpu_backend.h"', True),
    ("server/main.cc", "<cuda_runtime.h>", False),
    ("client/cpp/source/client.cc", "<grpcpp/grpcpp.h>", True),
    ("client/cpp/source/client.cc", '"server/engine/sessions/handle.h"', False),
    ("client/cpp/source/client.cc", '"kernels/op.h"', False),
    ("client/cpp/source/client.cc", '"status/propagate.h"', True),
    ("client/armed/slot.cc", '"status/propagate.h"', False),
    ("kernels/cuda/ops/gated.cu", '"status/propagate.h"', False),
    ("status/propagate.h", '"kernels/op.h"', False),
    ("client/cli/matmul.cc", '"client/cpp/client.h"', True),
    ("client/cli/matmul.cc", '"kernels/cpu/matmul/reference.h"', False),
]


def run(root):
    done = subprocess.run([sys.executable, HERE / "layering.py", root], capture_output=True, text=True)
    return done.returncode, done.stdout


class LayeringTest(unittest.TestCase):
    def test_planted_includes(self):
        for path, header, allowed in CASES:
            with self.subTest(path=path, header=header), tempfile.TemporaryDirectory() as root:
                file = pathlib.Path(root, path)
                file.parent.mkdir(parents=True)
                file.write_text(f"// comment\n  #  include {header}\n")
                code, output = run(root)
                self.assertEqual(code, 0 if allowed else 1, output)
                if not allowed:
                    self.assertIn(f"{path}:2:", output)

    def test_empty_tree_is_an_error(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(run(root)[0], 1)


if __name__ == "__main__":
    unittest.main()
