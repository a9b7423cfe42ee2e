// What self-tests are made of: operands that show any mistake, on the device, and a result that is
// poisoned before each kernel's turn and waited for with patience.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/cuda/args/op_args.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// SplitMix64: the same data on every machine.
class SelfTestRandom {
 public:
  uint64_t operator()() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }

 private:
  uint64_t state_ = 7;
};

int64_t BytesOf(const TensorRef& tensor);  // from its first element to its last
// E4M3 of magnitudes from 1/16 to 15/8, BF16 and FP16 from 1/8 to 2, both signs; INT8 of any.
std::vector<std::byte> RandomValues(const TensorRef& tensor, SelfTestRandom& random);
// FP32 between 1/4 and 4, no two alike: a scale taken from the wrong place shows.
std::vector<std::byte> RandomScales(const TensorRef& tensor, SelfTestRandom& random);

// How far an element may be from what it should be; `rms` of all that should be.
double SelfTestAllowed(double expected, double rms);

// The slots on the device. What it holds is lost when a kernel hangs: freeing would wait for it.
class SelfTestBench {
 public:
  static absl::StatusOr<std::unique_ptr<SelfTestBench>> Make(
      absl::Span<const std::vector<std::byte>> slots, int result_slot, int ordinal);
  ~SelfTestBench();

  SlotAddresses slots() const { return slots_; }
  cudaStream_t stream() const { return stream_; }

  // Before a launch: NaNs in the result and beyond it, so that what is not written shows, and what
  // should not be.
  absl::Status Poison();
  // What is in the result once the launch is through. UNAVAILABLE when it does not end.
  absl::StatusOr<absl::Span<std::byte>> Await();

 private:
  absl::Status Init(absl::Span<const std::vector<std::byte>> slots, int result_slot, int ordinal);

  cudaStream_t stream_ = nullptr;
  cudaEvent_t end_ = nullptr;
  std::vector<std::byte*> slots_;
  int result_slot_ = 0;
  std::vector<std::byte> result_;
  bool hung_ = false;
};

// One kernel's turn on a bench: `launch` queues it, `judge` says what is wrong with the result. A
// status is the device's end; else what is wrong with the kernel, if anything.
absl::StatusOr<std::string> TryKernel(SelfTestBench& bench,
                                      absl::FunctionRef<absl::Status()> launch,
                                      absl::FunctionRef<std::string(absl::Span<std::byte>)> judge);
// UNAVAILABLE, of the kernel whose turn ended with `end`.
absl::Status TookTheDevice(absl::string_view kernel, const absl::Status& end);

}  // namespace gemmd::kernels::cuda
