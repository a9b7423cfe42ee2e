#include "kernels/cuda/op_cost.h"

#include <type_traits>
#include <variant>

namespace gemmd::kernels::cuda {
namespace {

constexpr double kLaunchSeconds = 2.5e-6;        // an elementwise kernel that has nothing to do
constexpr double kDefaultBytesPerSecond = 3e12;  // HBM3 with room to spare
constexpr double kMemoryShare = 0.7;             // of the peak, as streaming kernels reach it
constexpr double kPcieSeconds = 3e-6;            // there and back, and an engine's start
constexpr double kPcieBytesPerSecond = 45e9;     // gen 5, 16 lanes, from pinned memory

}  // namespace

const TensorRef& MainTensor(const Op& op) {
  return std::visit(
      []<class T>(const T& x) -> const TensorRef& {
        if constexpr (std::is_same_v<T, MatmulOp>) {
          return x.a.values;
        } else if constexpr (std::is_same_v<T, ReadOp>) {
          return x.src;
        } else {
          return x.dst;
        }
      },
      op);
}

double MoveSeconds(const Op& op, double memory_bytes_per_s) {
  const double bytes = Bytes(op);
  if (std::holds_alternative<WriteOp>(op) || std::holds_alternative<ReadOp>(op)) {
    return kPcieSeconds + bytes / kPcieBytesPerSecond;
  }
  const double rate = memory_bytes_per_s > 0 ? memory_bytes_per_s : kDefaultBytesPerSecond;
  return kLaunchSeconds + bytes / (rate * kMemoryShare);
}

}  // namespace gemmd::kernels::cuda
