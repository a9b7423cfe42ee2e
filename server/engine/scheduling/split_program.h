// SplitProgram: a program whose ops write on several devices. One submission, one answer, one
// report; each device's lane runs its parts as jobs like any others (split_run.h).
//
// Which device an op belongs to, and how bytes go between devices: placement.h.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/op.h"
#include "server/engine/scheduling/device.h"
#include "server/engine/scheduling/job.h"
#include "server/engine/scheduling/parts.h"
#include "server/engine/scheduling/run.h"
#include "server/engine/sessions/tenant.h"

namespace gemmd::server {

// Immutable.
class SplitProgram final : public kernels::Program {
 public:
  // Each part is a job: so many bound what one submission brings to the lanes.
  static constexpr size_t kMostParts = 1024;

  struct Part {
    Device* device = nullptr;
    Lane* lane = nullptr;  // of the device
    std::shared_ptr<const kernels::Program> program;
    std::vector<int> ops;              // of the caller's, ascending
    std::vector<OpRun::Before> after;  // ops of other lanes' parts, all before this one
    std::vector<int> awaited;          // as OpRun's
    Peers peers;                       // as Job's
  };

  // Of ops that are valid and write on more than one device. INVALID_ARGUMENT with the remedy for
  // an op that computes on another device's buffer and for too many parts; else as AddPeer,
  // Backend::Compile and the tenant's host memory have it.
  static absl::StatusOr<std::shared_ptr<const SplitProgram>> Compile(
      Tenant& tenant, absl::Span<const kernels::Op> ops, const SlotTable& slots);

  absl::Span<const Step> steps() const override { return steps_; }
  // Of all devices together.
  double estimated_seconds() const override { return estimated_seconds_; }

  const std::vector<Part>& parts() const { return parts_; }
  const Device& device_of(size_t op) const { return *devices_[op]; }
  std::string DeviceNames() const;  // "cuda:0,cuda:1": by their first ops

 private:
  std::vector<Part> parts_;
  std::vector<Device*> devices_;  // by op
  std::vector<Step> steps_;
  double estimated_seconds_ = 0;
};

}  // namespace gemmd::server
