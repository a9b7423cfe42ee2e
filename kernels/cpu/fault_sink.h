// FaultSink: what an op's threads find wrong with the numbers that they read.

#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/data_fault.h"

namespace gemmd::kernels::cpu {

// Thread-safe. Keeps the fault of the lowest index, so that an op reports the same one each time.
class FaultSink {
 public:
  void Report(const DataFault& fault) {
    if (fault.kind == DataFaultKind::kNone) return;
    absl::MutexLock lock(&mutex_);
    if (fault_.kind == DataFaultKind::kNone || fault.index < fault_.index) fault_ = fault;
  }
  DataFault fault() const {
    absl::MutexLock lock(&mutex_);
    return fault_;
  }

 private:
  mutable absl::Mutex mutex_;
  DataFault fault_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::kernels::cpu
