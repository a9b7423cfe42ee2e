#include "kernels/cuda/sm90/gemm.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/sm90/code_hash.h"
#include "kernels/cuda/sm90/k_split.h"
#include "kernels/cuda/sm90/launch/scratch_front.h"
#include "kernels/cuda/sm90/tensor_map.h"
#include "kernels/cuda/sm90/tile_grid.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

// Ways to divide k that were worth having; a cluster holds at most kMaxClusterSize CTAs.
constexpr int kSplits[] = {1, 2, 3, 4, 5, 6, 7, 8};

std::vector<GemmVariant> ListVariants() {
  std::vector<GemmVariant> all;
  for (int family = 0; family < kNumGemmFamilies + kNumStreamFamilies; ++family) {
    const GemmVariant first = {family};
    for (int config = 0; config < first.entry().num_configs; ++config) {
      const GemmConfig& shape = first.entry().configs[config];
      for (int split : kSplits) {
        if (split > 1 && (first.streams_k() || !shape.splits(split))) continue;
        if (shape.multicast() * split > kMaxClusterSize) continue;
        all.push_back({family, config, split});
      }
    }
  }
  return all;
}

// Whether rows of D start at multiples of 16 bytes.
bool HasRowsOfUnits(const GemmArgs& args) {
  const int64_t unit = args.out == OutType::kF32 ? 4 : 8;
  return args.ldd % unit == 0 && (args.batch == 1 || args.d_batch % unit == 0) &&
         reinterpret_cast<uintptr_t>(args.d) % 16 == 0;
}

// Kernels that finish take other rows, too: they write four columns at once wherever those begin.
bool Finishes(const GemmArgs& args) { return NeedsFinish(args) || !HasRowsOfUnits(args); }

// The plain kernels, those that finish, or those for operands along their rows.
const StreamFamilyEntry& StreamEntryOf(const GemmVariant& variant, const GemmArgs& args) {
  const StreamFamilyEntry& plain = variant.stream_entry();
  if (args.a_along_rows) return *plain.both_along_rows;
  if (args.b_along_rows) return *plain.along_rows;
  return Finishes(args) ? *plain.finishing : plain;
}
const GemmFamilyEntry& EntryOf(const GemmVariant& variant, const GemmArgs& args) {
  if (variant.streams_k()) return StreamEntryOf(variant, args).family;
  if (args.a_along_rows) return *variant.entry().both_along_rows;
  if (args.b_along_rows) return *variant.entry().along_rows;
  return Finishes(args) ? *variant.entry().finishing : variant.entry();
}

// Clusters of a variant that run at once on `device`: asked for once, since the answer takes the
// driver tens of microseconds. Also gives the kernel its shared memory.
absl::StatusOr<int> ClustersAtOnce(const GemmVariant& variant, const GemmFamilyEntry& family,
                                   int ordinal) {
  constexpr int kMaxDevices = 64;
  struct Slot {
    absl::Status status;
    int clusters = 0;
  };
  if (ordinal < 0 || ordinal >= kMaxDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", ordinal, " is beyond the limit of ", kMaxDevices, " devices"));
  }
  using Key = std::pair<GemmVariant, const GemmFamilyEntry*>;
  static std::array<std::map<Key, Slot>, kMaxDevices> slots;
  static absl::Mutex mutex;
  absl::MutexLock lock(&mutex);
  auto [entry, added] = slots[ordinal].try_emplace({variant, &family});
  Slot& slot = entry->second;
  if (added) {
    slot.status = ToStatus(family.prepare(variant.config), "preparing " + Name(variant));
    if (slot.status.ok()) {
      slot.status =
          ToStatus(family.max_clusters(variant.config, variant.shape().multicast() * variant.split,
                                       &slot.clusters),
                   "occupancy of " + Name(variant));
    }
    if (slot.status.ok() && slot.clusters < 1) {
      slot.status = absl::UnimplementedError(
          absl::StrCat("no cluster of ", Text(Name(variant)), " fits on the device"));
    }
  }
  if (!slot.status.ok()) return slot.status;
  return slot.clusters;
}

// What stays in L2 while all of it is read again, beside what else passes.
constexpr int64_t kStaysInL2 = int64_t{16} << 20;

// Whether all who read a part of B do so at one time.
bool StreamsB(int64_t m_tiles, int64_t tiles, const GemmArgs& args, int at_once) {
  const bool shared = args.batch > 1 && args.b_batch == 0;
  return tiles <= at_once || (m_tiles == 1 && !shared);
}

int64_t ClustersFor(const GemmConfig& shape, int split, int64_t tiles, int at_once) {
  // A cluster that splits k works on one tile: its ring becomes the inbox for partial sums.
  if (split > 1) return tiles;
  constexpr int kSpare = 4;  // some in either half of L2, most likely
  return std::min<int64_t>(tiles + (shape.takes_spares() ? kSpare : 0), at_once);
}

// Whether results are finished where they are, if at all.
bool Adjusts(const GemmVariant& variant, const GemmArgs& args) {
  return !variant.shape().skinny() && variant.split == 1 && HasRowsOfUnits(args) &&
         (!NeedsFinish(args) || OnlyAdjusts(args));
}

// Whether D may leave by the copy engine: 16-bit values, which are finished by then. Of a row that
// ends within 16 bytes it writes those whole, and with them what stands behind the row.
bool StoresByCopy(const GemmVariant& variant, const GemmArgs& args) {
  return variant.shape().stores_tile && variant.split == 1 && HasRowsOfUnits(args) &&
         args.out != OutType::kF32 && args.n % 8 == 0;
}

// Whether C comes by the ring: as 16-bit values, in rows that the copy engine can read.
bool AddsByRing(const GemmVariant& variant, const GemmArgs& args) {
  return args.beta != 0.0f && args.out != OutType::kF32 && variant.split == 1 &&
         variant.shape().adds_by_ring() && args.ldc % 8 == 0 &&
         (args.batch == 1 || (args.c_batch != 0 && args.c_batch % 8 == 0)) &&
         reinterpret_cast<uintptr_t>(args.c) % 16 == 0;
}

// An operand of so many rows along them: as many as a box has, of one k block.
TensorView AlongRowsView(TensorView view, int64_t rows, int64_t k, const GemmConfig& shape) {
  view.cols = rows * shape.element_bytes();
  view.rows = k;
  view.planes = 1;
  view.plane_stride_bytes = 0;
  view.box_cols = kRowBytes;
  view.box_rows = shape.block_k();
  view.box_planes = 1;
  return view;
}

// The walk of stream_k.h, for as many tiles of the matrices, by up to `ctas`.
void AddStream(const GemmConfig& shape, int64_t row_tiles, int64_t col_tiles, int ctas,
               std::byte* scratch, StreamLaunch& launch) {
  const int64_t m_tiles = shape.skinny() ? col_tiles : row_tiles;
  const int64_t n_tiles = shape.skinny() ? row_tiles : col_tiles;
  const StreamTeams teams =
      TeamsOf(shape, m_tiles, n_tiles * launch.args.batch, launch.k_blocks, ctas);
  launch.tiles = shape.skinny()
                     ? GridOf(n_tiles, teams.bands, launch.args.batch, static_cast<int>(n_tiles))
                     : GridOf(teams.bands, n_tiles, launch.args.batch, 1);
  launch.clusters = teams.team * teams.teams;
  launch.streams_b = teams.bands == 1 && (launch.args.batch == 1 || !launch.one_b);
  launch.stream = LineOf(teams, launch.k_blocks);
  launch.stream.partials = reinterpret_cast<float4*>(scratch);
  launch.stream.flags = StreamFlagsOf(scratch);
}

}  // namespace

int RasterOf(const GemmConfig& shape, const GemmArgs& args, int64_t row_tiles, int64_t col_tiles,
             int clusters) {
  const bool a_stays = args.m * args.k * shape.element_bytes() <= kStaysInL2;
  const int64_t wanted = std::max<int64_t>(1, 16 / shape.share_cols);
  int64_t raster = wanted;
  if (shape.skinny()) {
    if (col_tiles > 1 && a_stays) raster = 1;
  } else if (col_tiles * wanted <= clusters) {
    raster = a_stays ? row_tiles : clusters / col_tiles;
  }
  return static_cast<int>(std::min(row_tiles, raster));
}

std::string Name(const GemmVariant& variant) {
  const GemmConfig& c = variant.shape();
  std::string name = absl::StrCat(variant.entry().name, "_m", c.block_m(), "n", c.block_n());
  if (c.k_blocks > 1) absl::StrAppend(&name, "k", c.k_blocks * c.block_k());
  absl::StrAppend(&name, "s", c.stages);
  if (c.stores_tile) absl::StrAppend(&name, "d");
  if (c.alternates) absl::StrAppend(&name, "a");
  if (c.k_groups > 1) absl::StrAppend(&name, "g", c.k_groups);
  if (c.ctas_per_sm > 1) absl::StrAppend(&name, "x", c.ctas_per_sm);
  if (c.share_rows > 1) absl::StrAppend(&name, "_r", c.share_rows);
  if (c.share_cols > 1) absl::StrAppend(&name, "_c", c.share_cols);
  if (variant.split > 1) absl::StrAppend(&name, "_k", variant.split);
  return name;
}

std::string_view CodeOf(const GemmVariant& variant) {
  return variant.streams_k() ? StreamCodeHash(variant.shape()) : CodeHash(variant.shape());
}

absl::Span<const GemmVariant> AllVariants() {
  static const auto* all = new std::vector<GemmVariant>(ListVariants());
  return *all;
}

std::optional<GemmVariant> FindVariant(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new absl::flat_hash_map<std::string, GemmVariant>();
    for (const GemmVariant& variant : AllVariants()) map->emplace(Name(variant), variant);
    return map;
  }();
  const auto found = by_name->find(Text(name));
  if (found == by_name->end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<StreamLaunch> PrepareLaunch(const GemmVariant& variant, const GemmArgs& args,
                                           std::byte* scratch, const DeviceTraits& device) {
  const absl::StatusOr<int> at_once =
      ClustersAtOnce(variant, EntryOf(variant, args), device.ordinal);
  if (!at_once.ok()) return at_once.status();
  const GemmConfig& shape = variant.shape();

  const int64_t size = shape.element_bytes();
  // Parts of k are whole chains of products; those behind the end of k are of zeros.
  const int64_t chains = CeilDiv(args.k, shape.block_k());
  const int64_t k_blocks = shape.products() == 1
                               ? chains
                               : CeilDiv(chains, variant.split) * variant.split * shape.products();
  TensorView a = {.address = args.a,
                  .cols = args.k * size,
                  .rows = args.m,
                  .batch = args.batch,
                  .row_stride_bytes = args.lda * size,
                  .batch_stride_bytes = args.a_batch * size,
                  .box_cols = kRowBytes,
                  .box_planes = shape.k_blocks};
  TensorView b = {.address = args.b,
                  .cols = args.k * size,
                  .rows = args.n,
                  .batch = args.b_batch == 0 ? 1 : args.batch,
                  .row_stride_bytes = args.ldb * size,
                  .batch_stride_bytes = args.b_batch * size,
                  .box_cols = kRowBytes,
                  .box_planes = shape.k_blocks};
  if (shape.k_blocks > 1) {
    for (TensorView* view : {&a, &b}) {
      view->cols = kRowBytes;
      view->planes = k_blocks;
      view->plane_stride_bytes = kRowBytes;
    }
  }
  if (shape.products() > 1) {
    for (TensorView* view : {&a, &b}) {
      view->planes = kFloatParts;
      view->plane_stride_bytes = view->rows * view->row_stride_bytes;
    }
  }
  TensorView& rows = shape.skinny() ? b : a;
  TensorView& cols = shape.skinny() ? a : b;
  rows.box_rows = shape.rows / shape.share_rows;
  cols.box_rows = shape.cols / shape.share_cols;
  if (args.a_along_rows) a = AlongRowsView(a, args.m, args.k, shape);
  if (args.b_along_rows) b = AlongRowsView(b, args.n, args.k, shape);
  StreamLaunch launch = {};
  const TensorView scales = {.address = args.a_scales,
                             .cols = args.m,
                             .rows = 1,
                             .planes = k_blocks,
                             .batch = args.batch,
                             .plane_stride_bytes = args.a_scales_ld * 4,
                             .batch_stride_bytes = args.a_scales_batch * 4,
                             .box_cols = shape.block_m(),
                             .box_rows = 1,
                             .box_planes = shape.k_blocks};
  for (auto [map, made] :
       {std::pair(&launch.row_map, ValuesMap(rows)), std::pair(&launch.col_map, ValuesMap(cols))}) {
    if (!made.ok()) return made.status();
    *map = *made;
  }
  if (shape.scales_blocks()) {
    const absl::StatusOr<CUtensorMap> made = ScalesMap(scales);
    if (!made.ok()) return made.status();
    launch.scale_map = *made;
  }
  if (StoresByCopy(variant, args)) {
    const absl::StatusOr<CUtensorMap> made = StoreMap({.address = args.d,
                                                       .cols = args.n,
                                                       .rows = args.m,
                                                       .batch = args.batch,
                                                       .row_stride_bytes = args.ldd * 2,
                                                       .batch_stride_bytes = args.d_batch * 2,
                                                       .box_cols = shape.store_cols(),
                                                       .box_rows = kStoreRows});
    if (!made.ok()) return made.status();
    launch.store_map = *made;
    launch.stores_by_copy = true;
  }
  if (AddsByRing(variant, args)) {
    const absl::StatusOr<CUtensorMap> made = ValuesMap({.address = args.c,
                                                        .cols = args.n * 2,
                                                        .rows = args.m,
                                                        .batch = args.batch,
                                                        .row_stride_bytes = args.ldc * 2,
                                                        .batch_stride_bytes = args.c_batch * 2,
                                                        .box_cols = kRowBytes,
                                                        .box_rows = shape.block_m()});
    if (!made.ok()) return made.status();
    launch.add_map = *made;
    launch.add_stages = shape.add_stages();
  }
  const int64_t row_tiles =
      CeilDiv(shape.skinny() ? args.n : args.m, shape.rows * shape.share_cols);
  const int64_t col_tiles =
      CeilDiv(shape.skinny() ? args.m : args.n, shape.cols * shape.share_rows);
  const int64_t tiles = row_tiles * col_tiles * args.batch;
  launch.args = args;
  launch.adjusts = Adjusts(variant, args);
  launch.rounds = !NeedsFinish(args);
  launch.one_b = args.b_batch == 0;
  launch.tiles = GridOf(row_tiles, col_tiles, args.batch,
                        RasterOf(shape, args, row_tiles, col_tiles, *at_once));
  launch.k_blocks = static_cast<int>(k_blocks);
  launch.split = SplitOf(shape, variant.split, CeilDiv(k_blocks, shape.k_blocks));
  launch.cluster_ctas = MakeDivisor(shape.multicast() * launch.split.parts);
  launch.streams_b = StreamsB(shape.skinny() ? col_tiles : row_tiles, tiles, args, *at_once);
  launch.clusters = static_cast<int>(ClustersFor(shape, variant.split, tiles, *at_once));
  if (variant.streams_k()) {
    const int ctas = std::min({*at_once, device.sms, kStreamFlags / shape.groups});
    AddStream(shape, row_tiles, col_tiles, ctas, scratch, launch);
  }
  return launch;
}

absl::Status Launch(const GemmVariant& variant, const StreamLaunch& launch, cudaStream_t stream) {
  const cudaError_t code =
      variant.streams_k()
          ? StreamEntryOf(variant, launch.args).launch(variant.config, launch, stream)
          : EntryOf(variant, launch.args).launch(variant.config, launch, stream);
  // The name is put together for an error alone.
  return code == cudaSuccess ? absl::OkStatus() : ToStatus(code, Name(variant));
}

}  // namespace gemmd::kernels::cuda
