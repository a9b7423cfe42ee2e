#include "kernels/cuda/matmul/self_test_bench.h"

#include <cmath>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::cuda {
namespace {

// Of one kernel; they take microseconds, and a first launch may load code.
constexpr absl::Duration kPatience = absl::Seconds(10);

// Allowed of an element: BF16's rounding is at most 2^-9 of it; FP8 tensor cores leave some 4e-4 of
// the elements' root mean square. A block of k too many or too few is 0.2 of it and more.
constexpr double kOfElement = 1.0 / 128;
constexpr double kOfBenchRms = 0.01;

}  // namespace

int64_t BytesOf(const TensorRef& tensor) {
  int64_t last = 0;
  for (int i = 0; i < tensor.shape.rank; ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  return (last + 1) * SizeBytes(tensor.dtype);
}

std::vector<std::byte> RandomValues(const TensorRef& tensor, SelfTestRandom& random) {
  std::vector<std::byte> bytes(BytesOf(tensor));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint64_t bits = random();
    const uint64_t sign = (bits & 1) << 7;
    const bool high = i % 2 == 1;  // of a type of two bytes
    const bool upper = i % 4 > 1;  // of a type of four
    switch (tensor.dtype) {
      case DType::kBF16:
        bytes[i] = static_cast<std::byte>(high ? sign | 0x3e | (bits >> 8 & 1) : bits >> 9);
        break;
      case DType::kF16:
        bytes[i] = static_cast<std::byte>(high ? sign | (0x30 + (bits >> 8) % 16) : bits >> 16);
        break;
      case DType::kI8:
        bytes[i] = static_cast<std::byte>(bits);
        break;
      case DType::kF32:  // from 1 to 2
        bytes[i] = static_cast<std::byte>(!upper ? bits >> 8
                                          : high ? sign | 0x3f
                                                 : 0x80 | (bits >> 9 & 0x7f));
        break;
      default:
        bytes[i] = static_cast<std::byte>(sign | (24 + (bits >> 8) % 40));
    }
  }
  return bytes;
}

std::vector<std::byte> RandomScales(const TensorRef& tensor, SelfTestRandom& random) {
  std::vector<float> scales(BytesOf(tensor) / sizeof(float));
  for (float& scale : scales) {
    scale = std::ldexp(1.0f + static_cast<float>(random() >> 40) / (1 << 24),
                       static_cast<int>(random() % 4) - 2);
  }
  std::vector<std::byte> bytes(scales.size() * sizeof(float));
  std::memcpy(bytes.data(), scales.data(), bytes.size());
  return bytes;
}

double SelfTestAllowed(double expected, double rms) {
  return kOfElement * std::abs(expected) + kOfBenchRms * rms;
}

absl::StatusOr<std::unique_ptr<SelfTestBench>> SelfTestBench::Make(
    absl::Span<const std::vector<std::byte>> slots, int result_slot, int ordinal) {
  auto bench = std::make_unique<SelfTestBench>();
  absl::Status status = bench->Init(slots, result_slot, ordinal);
  if (!status.ok()) return status;
  return bench;
}

SelfTestBench::~SelfTestBench() {
  if (hung_) return;
  for (std::byte* slot : slots_) cudaFree(slot);
  if (end_ != nullptr) cudaEventDestroy(end_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  cudaGetLastError();
}

absl::Status SelfTestBench::Poison() {
  return ToStatus(cudaMemsetAsync(slots_[result_slot_], 0xff, result_.size(), stream_),
                  "cudaMemsetAsync");
}

absl::StatusOr<absl::Span<std::byte>> SelfTestBench::Await() {
  absl::Status status = ToStatus(cudaEventRecord(end_, stream_), "cudaEventRecord");
  if (!status.ok()) return status;
  const absl::Time limit = absl::Now() + kPatience;
  cudaError_t code;
  while ((code = cudaEventQuery(end_)) == cudaErrorNotReady) {
    if (absl::Now() > limit) {
      hung_ = true;
      return absl::UnavailableError(
          absl::StrCat("it did not end within ", absl::FormatDuration(kPatience)));
    }
    std::this_thread::yield();
  }
  cudaGetLastError();  // "not ready" is none
  if (code == cudaSuccess) {
    code = cudaMemcpy(result_.data(), slots_[result_slot_], result_.size(), cudaMemcpyDeviceToHost);
  }
  status = ToStatus(code, "running it");
  if (!status.ok()) return status;
  return absl::MakeSpan(result_);
}

absl::Status SelfTestBench::Init(absl::Span<const std::vector<std::byte>> slots, int result_slot,
                                 int ordinal) {
  absl::Status status = ToStatus(cudaSetDevice(ordinal), "choosing the device");
  if (status.ok()) {
    status = ToStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  }
  if (status.ok()) {
    status = ToStatus(cudaEventCreateWithFlags(&end_, cudaEventDisableTiming), "an event");
  }
  for (const std::vector<std::byte>& bytes : slots) {
    if (!status.ok()) return status;
    void* address = nullptr;
    status = ToStatus(cudaMalloc(&address, bytes.size()), "allocating device memory");
    if (!status.ok()) return status;
    slots_.push_back(static_cast<std::byte*>(address));
    status = ToStatus(cudaMemcpy(address, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                      "copying operands");
  }
  // A copy from pageable memory may return before its last piece has arrived.
  if (status.ok()) status = ToStatus(cudaStreamSynchronize(cudaStreamLegacy), "copying operands");
  result_slot_ = result_slot;
  result_.resize(slots[result_slot].size());
  return status;
}

absl::StatusOr<std::string> TryKernel(SelfTestBench& bench,
                                      absl::FunctionRef<absl::Status()> launch,
                                      absl::FunctionRef<std::string(absl::Span<std::byte>)> judge) {
  absl::Status status = bench.Poison();
  if (status.ok()) status = launch();
  if (!status.ok()) {
    cudaGetLastError();
    if (absl::IsUnavailable(status)) return status;
    return absl::StrCat("it cannot be launched: ", status.message());
  }
  const absl::StatusOr<absl::Span<std::byte>> result = bench.Await();
  if (!result.ok()) return result.status();
  return judge(*result);
}

absl::Status TookTheDevice(absl::string_view kernel, const absl::Status& end) {
  return absl::UnavailableError(absl::StrCat("the self-test of kernel ", kernel,
                                             " took the device with it (", end.message(),
                                             "); disable the kernel in the config"));
}

}  // namespace gemmd::kernels::cuda
