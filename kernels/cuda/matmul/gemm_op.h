// What the TMA families launch, and how scales come into their layout.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/scale_layout.h"
#include "kernels/cuda/sm90/gemm_args.h"

namespace gemmd::kernels::cuda {

// Copies of scales that lie as no kernel takes them: a's are wanted along the rows, b's along k.
// An offset is into the op's scratch.
struct ScaleCopies {
  bool a = false;
  bool b = false;
  int64_t b_offset = 0;  // a's copy is at 0
  int64_t scratch_bytes = 0;
};

// Scratch of one op; what needs more takes another kernel.
inline constexpr int64_t kMaxScratchBytes = int64_t{1} << 30;

// Of a matmul that a TMA kernel serves. Scales of other than 1x128 and 128x128 are read as they
// lie. Of addresses the alignment counts.
ScaleCopies CopiesOf(const AnyGemmArgs& args);
// Of a's scales alone, for all items of its batch.
ScaleCopies CopiesOfA(const AnyGemmArgs& args);

// The arguments for a launch: `scratch` is the copies' memory, at a
// multiple of 256.
GemmArgs GemmArgsOf(const AnyGemmArgs& any, const ScaleCopies& copies, std::byte* scratch);

// The launches that make the copies, which come before the matmul's.
std::optional<ScaleLayoutArgs> CopyOfA(const AnyGemmArgs& any, const ScaleCopies& copies,
                                       std::byte* scratch);
std::optional<ScaleLayoutArgs> CopyOfB(const AnyGemmArgs& any, const ScaleCopies& copies,
                                       std::byte* scratch);

}  // namespace gemmd::kernels::cuda
