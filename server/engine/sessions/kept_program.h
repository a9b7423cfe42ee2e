// KeptProgram: the program of a plan. One whose kernels can be measured is compiled anew when the
// device chooses by other times, so that plans and armed slots gain from what was measured after
// they were made.

#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/op.h"
#include "server/engine/sessions/tenant.h"

namespace gemmd::server {

// Thread-safe.
class RenewableProgram {
 public:
  // `tenant` outlives it, and pays for the ops by `charge` and for what is compiled of them.
  RenewableProgram(std::vector<kernels::Op> ops, Charge charge, Tenant& tenant,
                   std::shared_ptr<const kernels::Program> program)
      : ops_(std::move(ops)),
        charge_(std::move(charge)),
        tenant_(tenant),
        program_(std::move(program)) {}

  std::shared_ptr<const kernels::Program> Get() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return program_;
  }
  // Runs that begin afterwards take the new program. Where it cannot be compiled, or the tenant has
  // no room for it, the old one stays.
  void Renew(kernels::Backend& backend) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::vector<kernels::Op> ops_;
  const Charge charge_;
  Tenant& tenant_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const kernels::Program> program_ ABSL_GUARDED_BY(mutex_);
};

// Those of one device. Thread-safe.
class RenewablePrograms {
 public:
  // Knows it for as long as somebody else has it.
  void Add(const std::shared_ptr<RenewableProgram>& program) ABSL_LOCKS_EXCLUDED(mutex_);
  // After the device's choices have changed.
  void RenewAll(kernels::Backend& backend) ABSL_LOCKS_EXCLUDED(mutex_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Programs = std::vector<std::weak_ptr<RenewableProgram>>;

  mutable absl::Mutex mutex_;
  Programs programs_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;  // so many: look who is gone
};

// What a plan has: such a program, or one that stays as it is.
class KeptProgram {
 public:
  KeptProgram() = default;
  explicit KeptProgram(std::shared_ptr<const kernels::Program> program)
      : fixed_(std::move(program)) {}
  explicit KeptProgram(std::shared_ptr<RenewableProgram> program)
      : renewable_(std::move(program)) {}

  std::shared_ptr<const kernels::Program> Get() const {
    return renewable_ != nullptr ? renewable_->Get() : fixed_;
  }

 private:
  std::shared_ptr<const kernels::Program> fixed_;
  std::shared_ptr<RenewableProgram> renewable_;
};

class Device;

// `program` was compiled of `ops` on the device and is charged. Fixed where no kernel of it can be
// measured, or the tenant has no room for the ops.
KeptProgram KeepProgram(Tenant& tenant, Device& device, absl::Span<const kernels::Op> ops,
                        std::shared_ptr<const kernels::Program> program);

}  // namespace gemmd::server
