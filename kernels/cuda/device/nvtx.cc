#include "kernels/cuda/device/nvtx.h"

#include <nvtx3/nvToolsExt.h>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kMostNames = 8;

// Null when no profiler is attached. One is attached as the process starts, or never.
nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("gemmd");
  return domain;
}

}  // namespace

std::string LaunchMessage(absl::Span<const Program::Step> steps) {
  std::string message = "gemmd.launch";
  int names = 0;
  for (size_t i = 0, next = 0; i < steps.size(); i = next) {
    for (next = i + 1; next < steps.size(); ++next) {
      if (steps[next].choice.kernel != steps[i].choice.kernel) break;
    }
    absl::StrAppend(&message, names == 0 ? " " : ", ");
    if (++names > kMostNames) return message + "...";
    absl::StrAppend(&message, Text(steps[i].choice.kernel));
    if (next - i > 1) absl::StrAppend(&message, " x", next - i);
  }
  return message;
}

LaunchRange::LaunchRange(uint64_t program, absl::Span<const Program::Step> steps) {
  if (Domain() == nullptr) return;
  const std::string message = LaunchMessage(steps);  // copied by the profiler
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = program;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = message.c_str();
  nvtxDomainRangePushEx(Domain(), &attributes);
}

LaunchRange::~LaunchRange() {
  if (Domain() != nullptr) nvtxDomainRangePop(Domain());
}

}  // namespace gemmd::kernels::cuda
