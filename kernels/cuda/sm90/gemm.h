// The pool of TMA + WGMMA matmul kernels: its members by name, and their launch. Which member
// serves a problem is selector.h's business, whether it can is legality.h's.
//
//   GemmVariant v = *FindVariant("sm90_fp8_skinny_m64n64s6x2_k4");
//   absl::StatusOr<StreamLaunch> launch = PrepareLaunch(v, args, scratch, traits);
//   absl::Status status = Launch(v, *launch, stream);

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/device/device_traits.h"
#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/stream_k.h"

namespace gemmd::kernels::cuda {

// One member of the pool: a family's config, and how many CTAs of a cluster divide k.
struct GemmVariant {
  int family = 0;  // index into kGemmFamilies, and behind them kStreamFamilies
  int config = 0;  // index into that family's configs
  int split = 1;

  bool streams_k() const { return family >= kNumGemmFamilies; }
  const StreamFamilyEntry& stream_entry() const {
    return *kStreamFamilies[family - kNumGemmFamilies];
  }
  const GemmFamilyEntry& entry() const {
    return streams_k() ? stream_entry().family : *kGemmFamilies[family];
  }
  const GemmConfig& shape() const { return entry().configs[config]; }
  // In the order of AllVariants().
  friend auto operator<=>(const GemmVariant&, const GemmVariant&) = default;
};

// "sm90_fp8_skinny_m64n64s6x2_k4": family, tile in D's terms, stages, then only what differs from
// the plain config (x2 CTAs an SM, r2/c2 multicast, k4 split).
std::string Name(const GemmVariant& variant);

// The hash of its kernel's machine code (code_hash.h), which all splits of a config share.
std::string_view CodeOf(const GemmVariant& variant);

// Whether it multiplies by a B along its rows as well.
inline bool ReadsAlongRows(const GemmVariant& variant) {
  return (variant.streams_k() ? variant.stream_entry().along_rows != nullptr
                              : variant.entry().along_rows != nullptr) &&
         variant.shape().has_along_rows();
}
// Likewise of an A along its rows beside such a B.
inline bool ReadsBothAlongRows(const GemmVariant& variant) {
  return ReadsAlongRows(variant) && variant.shape().has_both_along_rows();
}

// Every member, families in order, splits of a config ascending. Stable within a build.
absl::Span<const GemmVariant> AllVariants();
std::optional<GemmVariant> FindVariant(std::string_view name);
// The place there of one of them.
inline int IndexOf(const GemmVariant& variant) {
  const absl::Span<const GemmVariant> all = AllVariants();
  return static_cast<int>(std::lower_bound(all.begin(), all.end(), variant) - all.begin());
}

// Scratch memory in which sums cross between CTAs; of most variants 0.
inline int64_t PartialBytes(const GemmVariant& variant, const DeviceTraits& device) {
  const GemmConfig& shape = variant.shape();
  return variant.streams_k() ? int64_t{device.sms} * shape.rows * shape.cols * 4 : 0;
}

// How many tiles of the row side a band of the grid has (tile_grid.h), if `clusters` work at one
// time. Bands are as wide as keep about a square of tiles at work at one time; where all columns
// take few CTAs, as wide as give work to the others. An A that stays in L2 may be read from there
// for each tile of the columns. Of a skinny kernel the rows are weights, which come from memory
// once if all columns that meet a tile of them work together; where A does not stay, it counts for
// more.
int RasterOf(const GemmConfig& shape, const GemmArgs& args, int64_t row_tiles, int64_t col_tiles,
             int clusters);

// Tensor maps and grid for `args`, which must be legal for `variant` (legality.h). `scratch`:
// PartialBytes, as MatmulFamily::Prepare has it. Of what is no stream the GemmLaunch alone counts.
// INVALID_ARGUMENT when the driver refuses a tensor map, with the offending value.
absl::StatusOr<StreamLaunch> PrepareLaunch(const GemmVariant& variant, const GemmArgs& args,
                                           std::byte* scratch, const DeviceTraits& device);

// Queues it on `stream` of the current device. Thread-safe.
absl::Status Launch(const GemmVariant& variant, const StreamLaunch& launch, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
