// A backend on the device, and short ways to use it.

#pragma once

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/device_buffer.h"
#include "tests/kernels/cuda/layers.h"

namespace gemmd::kernels::cuda {

inline constexpr int64_t kLimit = int64_t{4} << 30;

inline std::vector<std::byte> RandomBytes(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class BackendGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    auto backend = CreateCudaBackend({.memory_bytes = kLimit});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  std::unique_ptr<Memory> Allocate(int64_t bytes, MemoryKind kind = MemoryKind::kDevice) {
    auto memory = backend_->Allocate(bytes, kind);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }
  std::vector<std::byte> Contents(const Memory& memory) {
    std::vector<std::byte> bytes(memory.size_bytes());
    EXPECT_TRUE(memory.CopyOut(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }
  std::shared_ptr<const Program> Fill(int64_t count, double value) {
    return *backend_->Compile({Op(FillOp{Dense(0, DType::kF32, MakeDims({count})), value})});
  }
  LaunchResult Run(Stream& stream, std::shared_ptr<const Program> program, Bindings bindings) {
    absl::Notification done;
    LaunchResult result;
    stream.Launch(std::move(program), std::move(bindings), [&](LaunchResult r) {
      result = std::move(r);
      done.Notify();
    });
    done.WaitForNotification();
    return result;
  }

  std::unique_ptr<Backend> backend_;
};

}  // namespace gemmd::kernels::cuda
