// CRounds: how a kernel waits for C by itself. Another GPU's sums come while it multiplies; a
// stream that waited for them would begin it when they are there. So a second stream waits, and
// then writes a word that the kernel looks at before it reads C. The wait needs no SM, and so it
// ends though the kernel has them all: as long as what it is for needs none of this GPU's, either.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/matmul/family.h"

namespace gemmd::kernels::cuda {

// Of one stream, whose device is current in each call. Thread-compatible. Errors are ToStatus's
// (cuda_status.h).
class CRounds {
 public:
  CRounds() = default;
  ~CRounds();  // the stream's work is through
  CRounds(const CRounds&) = delete;
  CRounds& operator=(const CRounds&) = delete;

  // The round that comes when the marks are set, and those of earlier calls. Each was set by
  // SetMark before, or never will be: then it does not count.
  absl::StatusOr<RoundOfC> Await(absl::Span<const std::shared_ptr<Mark>> marks);

 private:
  absl::Status Begin();  // what the first Await needs

  cudaStream_t waits_ = nullptr;
  uint32_t* rounds_ = nullptr;
  uint32_t round_ = 0;
};

}  // namespace gemmd::kernels::cuda
