#include "tests/kernels/cuda/fake_pool.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/sm90/config_makers.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig kTiledConfigs[] = {Tiled(128, 128, 5), SharingCols(Tiled(128, 128, 5))};
constexpr GemmConfig kSkinnyConfigs[] = {Skinny(8, 64, 1, 20), Skinny(64, 64, 1, 12)};

cudaError_t NoPrepare(int) { return cudaErrorNoDevice; }
cudaError_t NoLaunch(int, const GemmLaunch&, cudaStream_t) { return cudaErrorNoDevice; }
cudaError_t NoClusters(int, int, int*) { return cudaErrorNoDevice; }

}  // namespace

extern const GemmFamilyEntry kSm90Fp8Tiled = {"tiled",   kTiledConfigs, 2,
                                              NoPrepare, NoLaunch,      NoClusters};
extern const GemmFamilyEntry kSm90Fp8Skinny = {"skinny",  kSkinnyConfigs, 2,
                                               NoPrepare, NoLaunch,       NoClusters};

namespace {

// Stages of two k blocks.
template <Mma kMma>
constexpr GemmConfig kDirectConfigs[] = {{.family = GemmFamily::kTiled,
                                          .mma = kMma,
                                          .rows = 128,
                                          .cols = 64,
                                          .groups = 2,
                                          .stages = 4,
                                          .k_blocks = 2}};
template <Mma kMma>
constexpr GemmFamilyEntry Direct(const char* name) {
  return {name, kDirectConfigs<kMma>, 1, NoPrepare, NoLaunch, NoClusters};
}
constexpr GemmFamilyEntry kNone = {"none", nullptr, 0, NoPrepare, NoLaunch, NoClusters};

}  // namespace

extern const GemmFamilyEntry kSm90Bf16Tiled = Direct<Mma::kBf16>("bf16");
extern const GemmFamilyEntry kSm90Bf16Skinny = kNone;
extern const GemmFamilyEntry kSm90F16Tiled = Direct<Mma::kF16>("f16");
extern const GemmFamilyEntry kSm90F16Skinny = kNone;
extern const GemmFamilyEntry kSm90I8Tiled = Direct<Mma::kI8>("i8");
extern const GemmFamilyEntry kSm90I8Skinny = kNone;
extern const GemmFamilyEntry kSm90I8BlockTiled = Direct<Mma::kI8Block>("i8block");
extern const GemmFamilyEntry kSm90I8BlockSkinny = kNone;
extern const GemmFamilyEntry kSm90Fp8RowTiled = Direct<Mma::kFp8Row>("fp8row");
extern const GemmFamilyEntry kSm90Fp8RowSkinny = kNone;
extern const GemmFamilyEntry kSm90F32Tiled = kNone;
extern const StreamFamilyEntry kSm90Bf16Stream = {kNone, nullptr};
extern const StreamFamilyEntry kSm90F16Stream = {kNone, nullptr};
extern const StreamFamilyEntry kSm90Fp8Stream = {kNone, nullptr};
extern const StreamFamilyEntry kSm90Fp8RowStream = {kNone, nullptr};

GemmVariant DirectVariant(Mma mma) {
  for (int family = 0; family < kNumGemmFamilies; ++family) {
    const GemmFamilyEntry& entry = *kGemmFamilies[family];
    if (entry.num_configs > 0 && entry.configs[0].mma == mma) return {family, 0, 1};
  }
  std::abort();
}

std::string Name(const GemmVariant& variant) {
  const GemmConfig& c = variant.shape();
  std::string name = absl::StrCat(variant.entry().name, "_", c.block_m(), "x", c.block_n());
  if (c.multicast() > 1) absl::StrAppend(&name, "_c", c.multicast());
  if (variant.split > 1) absl::StrAppend(&name, "_k", variant.split);
  return name;
}

absl::Span<const GemmVariant> AllVariants() {
  static const auto* const kAll = new std::vector<GemmVariant>{
      {0, 0, 1}, {0, 1, 1}, {1, 0, 1}, {1, 0, 2}, {1, 0, 4},
      {1, 0, 8}, {1, 1, 1}, {1, 1, 2}, {1, 1, 4}, {1, 1, 8},
  };
  return *kAll;
}

std::optional<GemmVariant> FindVariant(std::string_view name) {
  for (const GemmVariant& variant : AllVariants()) {
    if (Name(variant) == name) return variant;
  }
  return std::nullopt;
}

std::string_view CodeOf(const GemmVariant& variant) {
  const GemmConfig& config = variant.shape();
  if (config.skinny()) return config.cols == 8 ? "5c1dd10000000008" : "5c1dd10000000064";
  return config.multicast() == 1 ? "711ed00000000128" : "711ed00000000c20";
}
std::string_view KernelCompiler() { return "13.0.88"; }

GemmVariant Variant(std::string_view name) {
  const std::optional<GemmVariant> variant = FindVariant(name);
  if (!variant.has_value()) std::abort();
  return *variant;
}

DeviceTraits FakeH200() { return {.model = "NVIDIA H200", .l2_bytes = 60 << 20}; }

MatmulProblem Fp8Problem(int64_t m, int64_t n, int64_t k) {
  MatmulProblem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  // As ProblemOf finds it: slots start on 256 bytes, and a single row has no stride to spoil it.
  const auto alignment = [](int64_t rows, int64_t bytes) {
    const int64_t bits = 256 | (rows > 1 ? bytes : 0);
    return static_cast<int>(bits & -bits);
  };
  constexpr Layout kRows = Layout::kKContiguous;
  problem.a = {DType::kE4M3, ScaleGranularity::kBlock1x128, kRows, k, alignment(m, k)};
  problem.b = {DType::kE4M3, ScaleGranularity::kBlock128x128, kRows, k, alignment(n, k)};
  problem.d = {DType::kBF16, ScaleGranularity::kNone, kRows, n, alignment(m, 2 * n)};
  return problem;
}

MatmulProblem DirectProblem(DType dtype, int64_t m, int64_t n, int64_t k) {
  MatmulProblem problem = Fp8Problem(m, n, k);
  const int64_t size = SizeBytes(dtype);
  for (auto [operand, rows] : {std::pair(&problem.a, m), {&problem.b, n}}) {
    const int64_t bits = 256 | (rows > 1 ? k * size : 0);
    *operand = {dtype, ScaleGranularity::kNone, Layout::kKContiguous, k,
                static_cast<int>(bits & -bits)};
  }
  return problem;
}

GemmArgs Fp8Args(int64_t m, int64_t n, int64_t k) {
  const auto address = [](uintptr_t value) { return reinterpret_cast<uint8_t*>(value << 32); };
  GemmArgs args;
  args.m = m;
  args.n = n;
  args.k = k;
  args.a = address(1);
  args.b = address(2);
  args.a_scales = reinterpret_cast<const float*>(address(3));
  args.b_scales = reinterpret_cast<const float*>(address(4));
  args.d = address(5);
  args.lda = args.ldb = k;
  args.ldd = args.ldc = n;
  args.a_scales_ld = (m + 3) / 4 * 4;
  args.b_scales_ld = (k + 127) / 128;
  return args;
}

}  // namespace gemmd::kernels::cuda
