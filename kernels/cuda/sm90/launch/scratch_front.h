// What lies in front of an op's scratch memory, zero whenever no kernel of the stream runs: the
// flags of stream_k.h, then the tickets of grouped.h.

#pragma once

#include "kernels/cuda/sm90/launch/grouped.h"
#include "kernels/cuda/sm90/stream_k.h"

namespace gemmd::kernels::cuda {

inline constexpr int64_t kScratchFront = kStreamFlagBytes + kScratchHead;

inline uint32_t* StreamFlagsOf(std::byte* scratch) {
  return reinterpret_cast<uint32_t*>(scratch - kScratchFront);
}

}  // namespace gemmd::kernels::cuda
