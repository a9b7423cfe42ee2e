#include "kernels/cuda/device/device_info.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/gpu_uuid.h"
#include "kernels/cuda/device/nvml.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kReserveBytes = 512 << 20;  // code, cuBLASLt's workspaces, scratch
constexpr double kReserveShare = 0.05;        // slabs' cuttings, other processes

// 13000 is CUDA 13.0.
std::string Version(int number) { return absl::StrCat(number / 1000, ".", number % 1000 / 10); }

absl::Status CheckDriver(const std::string& name) {
  int driver = 0;
  int runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
  if (driver == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", name, ": no NVIDIA driver is loaded on this machine; install one ",
                     "for CUDA ", Version(runtime), " or newer, or use cpu:0"));
  }
  if (driver / 1000 < runtime / 1000) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device ", name, ": the NVIDIA driver is of CUDA ", Version(driver),
        ", this build is of CUDA ", Version(runtime), "; install a newer driver, or use cpu:0"));
  }
  return absl::OkStatus();
}

// Multiply-adds of an SM a clock (sm_90), by dense tensor cores: of FP32 numbers six of BF16 parts
// (ops/float_parts.h).
double MacsPerClock(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 2048.0 / 6;
    case DType::kBF16:
    case DType::kF16:
      return 2048;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kI8:
      return 4096;
    case DType::kI32:  // is not multiplied
      return 0;
  }
  return 0;
}

double Attribute(cudaDeviceAttr attribute, int ordinal) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, ordinal) == cudaSuccess) return value;
  cudaGetLastError();
  return 0;
}

}  // namespace

absl::StatusOr<DeviceTraits> FindDevice(const std::string& name, int ordinal) {
  if (ordinal < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", name, ": ordinal ", ordinal, " is negative; the first is 0"));
  }
  if (absl::Status status = CheckDriver(name); !status.ok()) return status;
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) cudaGetLastError();
  if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", name, ": the driver finds no GPU; look at nvidia-smi and ",
                     "CUDA_VISIBLE_DEVICES, or use cpu:0"));
  }
  if (code != cudaSuccess) return ToStatus(code, absl::StrCat("device ", name, ": counting GPUs"));
  if (ordinal >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", name, ": this machine has ", count,
                     count == 1 ? " GPU, cuda:0" : " GPUs, the last is cuda:",
                     count == 1 ? "" : absl::StrCat(count - 1), "; use one of those"));
  }
  absl::StatusOr<DeviceTraits> traits = TraitsOf(ordinal);
  if (!traits.ok()) return traits;
  if (std::string why = WhyNot(*traits); !why.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("device ", name, " (", traits->model,
                                                      "): ", why, " (Hopper: H100, H200, GH200); ",
                                                      "use such a GPU, or cpu:0"));
  }
  return traits;
}

absl::StatusOr<DeviceInfo> DescribeGpu(const std::string& name, const DeviceTraits& traits,
                                       int64_t memory_bytes) {
  absl::Status status = ToStatus(cudaSetDevice(traits.ordinal), absl::StrCat("device ", name));
  if (!status.ok()) return status;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  status = ToStatus(cudaMemGetInfo(&free_bytes, &total_bytes),
                    absl::StrCat("device ", name, ": asking for its memory"));
  if (!status.ok()) return status;
  DeviceInfo info;
  info.name = name;
  info.model = traits.model;
  info.architecture = absl::StrCat("sm_", traits.compute_major, traits.compute_minor);
  absl::StatusOr<std::string> uuid = GpuUuid(traits.ordinal);
  if (!uuid.ok()) return uuid.status();
  info.gpu_uuid = *std::move(uuid);
  info.gpu_ordinal = traits.ordinal;
  // Where the driver's library is not at hand the GPU works as well and tells less.
  if (auto sensors = OpenNvml(info.gpu_uuid); sensors.ok()) info.sensors = *std::move(sensors);
  info.memory_bytes = memory_bytes;
  if (memory_bytes == 0) {
    const auto spared = static_cast<int64_t>(static_cast<double>(free_bytes) * kReserveShare);
    info.memory_bytes =
        std::max<int64_t>(0, static_cast<int64_t>(free_bytes) - spared - kReserveBytes);
  }
  // Clocks are in kHz, the highest that the driver names; data sheets' figures are for a lower one.
  const double clock = Attribute(cudaDevAttrClockRate, traits.ordinal) * 1e3;
  for (const DTypeInfo& dtype : kDTypes) {
    info.peak_flops[static_cast<size_t>(dtype.dtype)] =
        2.0 * MacsPerClock(dtype.dtype) * traits.sms * clock;
  }
  // The memory's bus carries two bits a clock and line.
  info.memory_bytes_per_s = 2 * Attribute(cudaDevAttrMemoryClockRate, traits.ordinal) * 1e3 *
                            Attribute(cudaDevAttrGlobalMemoryBusWidth, traits.ordinal) / 8;
  return info;
}

HostNode FindHostNode(const DeviceTraits& traits) {
  char bus_id[32] = "";  // "0000:1B:00.0"
  if (cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), traits.ordinal) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  return FindHostNode(bus_id, UsableCpus());
}

}  // namespace gemmd::kernels::cuda
