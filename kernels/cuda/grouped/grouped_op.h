// From a GroupedMatmulOp to its launches: the directory, scales brought into their layout, the
// matmul, and the gate behind it. Which kernels take an op, and what each needs: grouped_layout.cc.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/args/op_args.h"
#include "kernels/cuda/grouped/grouped_direct.h"
#include "kernels/cuda/grouped/grouped_extents.h"
#include "kernels/cuda/matmul/fused_gate.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/ops/gated.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/cuda/sm90/launch/grouped.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// Empty when they take the operand, of this type and with scales of this kind: "a is bf16; ...".
std::string OperandWhyNot(const char* name, const Operand& operand, DType type,
                          ScaleGranularity wanted);
// Empty when rows of an operand lie as TMA takes them.
std::string RowsWhyNot(const char* name, const TensorRef& tensor);
// Empty when the TMA kernels can write d, and add the bias.
std::string ResultWhyNot(const GroupedMatmulOp& op, const GroupedExtents& extents);
// Empty when the TMA kernels for FP8 serve the op: "a is bf16; ...".
std::string WhyNotFp8(const GroupedMatmulOp& op);
// The same of those for the op's type (TmaGroupedName).
std::string WhyNotTma(const GroupedMatmulOp& op);
// Empty when they apply its gate, too; of an op that has one, and that they serve.
std::string WhyNotFused(const GroupedMatmulOp& op);

// The TMA kernels for block scales, by the rows that the host can expect of a group.
enum class RowsKernel : uint8_t {
  kFew,    // thin tiles, wide ones and half of one: groups of any size
  kUnits,  // 192 rows at a time, the weights read once for them
  kPairs,  // wide tiles by CTAs in pairs, which share the weights
  kRests,  // the same, with up to 32 rows behind a pair's in its tile; all those with a gate
};
inline constexpr int kRowsKernels = 4;

// Whether the matmul, in front of a gate of its own if the op has one, needs a kernel that
// finishes: NeedsFinish() of its arguments.
bool NeedsFinish(const GroupedMatmulOp& op);
// Whether such a kernel is one of these: others' ops go to those.
constexpr bool Finishes(RowsKernel rows) {
  return rows == RowsKernel::kFew || rows == RowsKernel::kPairs;
}

// Of an op that they serve, by the rows that the host can expect (rows_kernel.cc).
RowsKernel RowsKernelOf(const GroupedMatmulOp& op, bool fused);

// What is settled before the op has memory: which kernels, and where things lie in its scratch.
struct GroupedLayout {
  bool by_tma = false;
  RowsKernel rows = RowsKernel::kFew;
  int direct_config = 0;                // of types without block scales
  bool fused = false;                   // kernels that apply the gate
  bool makes_rows = false;              // the directory kernel tells where each group's rows are
  int64_t most_tiles[kTileLists] = {};  // of the kernel that takes anything
  ScaleCopies copies;                   // of a's scales, at 0
  int64_t counts_offset = 0;            // likewise
  int64_t tiles_offset[kTileLists] = {};
  int64_t table_offset = 0;              // of matrices that lie apart
  int64_t maps_offset[kTileLists] = {};  // likewise, for the TMA kernel
  int64_t starts_offset = 0;             // where it makes_rows
  int64_t owners_offset = 0;             // with a gate of its own
  int64_t product_offset = 0;            // likewise: the product in front of it
  DType product = DType::kBF16;
  int64_t scratch_bytes = 0;
};
// `by_tma`: by the TMA kernels for its type, which serve it. `fused`: by those that apply its gate,
// which do, too.
GroupedLayout LayoutOf(const GroupedMatmulOp& op, bool by_tma, bool fused = false);

double GroupedSeconds(const GroupedMatmulOp& op, bool by_tma, double memory_bytes_per_s,
                      bool fused = false);

// Ready to be queued any number of times. Whoever queues it gives the place of its fault.
struct GroupedLaunches {
  std::optional<DirectoryArgs> directory;
  std::vector<TableArgs> tables;  // of matrices that lie apart: what makes their table
  std::optional<ScaleLayoutArgs> copy;
  std::optional<AnyGroupedArgs> any;
  std::optional<GroupedLaunch> block_scaled;
  const GroupedFamilyEntry* family = nullptr;  // with a fused gate another one
  int ctas = 0;
  std::optional<DirectGrouped> direct;  // of types without block scales, in its place
  std::optional<OwnersArgs> owners;
  std::optional<GatedArgs> gated;
};

// INVALID_ARGUMENT when the driver refuses a tensor map. The device is current. `scratch` at a
// multiple of 256, behind kScratchHead bytes that are zero.
absl::StatusOr<GroupedLaunches> PrepareGrouped(const GroupedMatmulOp& op,
                                               const GroupedLayout& layout, SlotAddresses slots,
                                               std::byte* scratch, const DeviceTraits& device);

// Of PrepareGrouped: the launches that make the table of the op's matrices, and the matmuls' told
// of it. Without a table it adds none.
absl::Status AddTable(const GroupedMatmulOp& op, const GroupedLayout& layout, SlotAddresses slots,
                      std::byte* scratch, GroupedLaunches& launches);

// `overlap`: the first kernel may start under the end of the one in front.
absl::Status QueueGrouped(const GroupedLaunches& launches, DataFault* fault, bool overlap,
                          cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
