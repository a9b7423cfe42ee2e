#include "kernels/cuda/matmul/legality.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/matmul/operand_kind.h"
#include "kernels/cuda/matmul/problem_args.h"
#include "kernels/cuda/rounding.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

// Kernels keep coordinates in int32, round them up to the tiles of a cluster, and rehearse their
// stores on a tile at kBeyond.
constexpr int64_t kMaxExtent = kBeyond;
// Kernels number tiles in int32, and multiply one direction's count by the height of a band (up to
// 64 tiles) of their order.
constexpr int64_t kMaxTiles = int64_t{1} << 25;
constexpr int64_t kMaxStreamSteps = int64_t{1} << 30;  // they divide numbers below that
constexpr int64_t kMaxBatch = 65535;
// Of products of up to 2^14, sums of so many stay below 2^31.
constexpr int64_t kMaxInt8K = (int64_t{1} << 17) - 1;

std::string ExtentWhyNot(const char* name, int64_t extent, int64_t limit) {
  if (extent < 1) return StrCat(name, "=", extent, ": there is nothing to multiply");
  if (extent > limit) {
    return StrCat(name, "=", extent, " exceeds ", limit,
                  ", the most that a kernel can count; divide the matrix along ", name);
  }
  return "";
}

std::string ExtentsWhyNot(Mma mma, int64_t batch, int64_t m, int64_t n, int64_t k) {
  for (auto [name, extent] : {std::pair{"m", m}, {"n", n}, {"k", k}}) {
    if (std::string why = ExtentWhyNot(name, extent, kMaxExtent); !why.empty()) return why;
  }
  if (mma == Mma::kI8 && k > kMaxInt8K) {
    return StrCat("k=", k, " exceeds ", kMaxInt8K,
                  ", above which sums in 32 bits could overflow; "
                  "divide the matrix along k");
  }
  return ExtentWhyNot("batch", batch, kMaxBatch);
}

// What the config and its split demand of the extents, which are sound by now.
std::string ConfigWhyNot(const GemmVariant& variant, int64_t batch, int64_t m, int64_t n,
                         int64_t k) {
  const GemmConfig& config = variant.shape();
  const int split = variant.split;
  const int cluster = config.multicast() * split;
  if (split < 1 || cluster > kMaxClusterSize) {
    return StrCat("split=", split, " makes clusters of ", cluster, " blocks; the limit is ",
                  kMaxClusterSize, ", so use a split of 1 to ",
                  kMaxClusterSize / config.multicast());
  }
  if (split > 1 && !config.splits(split)) {
    return StrCat("split=", split, ": partial results of ", config.rows, "x", config.cols,
                  " do not fit into its ", config.stages, " stages; use split=1");
  }
  const int64_t block = config.block_k();
  const int64_t stage = config.k_blocks * block;
  if (config.k_blocks > 1 && k % block != 0) {
    return StrCat("k=", k, " is not a multiple of ", block, ", which stages of ", stage,
                  " need; pad k to ", RoundUp(k, block));
  }
  const int64_t stages = CeilDiv(config.k_blocks_of(k), config.k_blocks);
  if (stages < split) {
    return StrCat("k=", k, " has ", stages, " blocks of ", stage, ", fewer than split=", split,
                  "; use a smaller split");
  }
  if (variant.streams_k() && stages < kLeastStreamTile) {
    return StrCat("k=", k, " has ", stages, " blocks of ", stage, ", fewer than ", kLeastStreamTile,
                  ", which are not worth dividing; use another kernel");
  }
  const int64_t row_extent = config.skinny() ? n : m;
  const int64_t col_extent = config.skinny() ? m : n;
  const int64_t row_tiles = RoundUp(CeilDiv(row_extent, config.rows), config.share_cols);
  const int64_t col_tiles = RoundUp(CeilDiv(col_extent, config.cols), config.share_rows);
  // Both factors are below 2^31, so their product is exact; the third is judged by division.
  if (row_tiles * col_tiles > kMaxTiles / batch) {
    return StrCat("batch=", batch, " m=", m, " n=", n, " has more than ", kMaxTiles, " tiles of ",
                  config.block_m(), "x", config.block_n(), "; divide the matrix");
  }
  // Bands of up to 16 tiles of rows make up to twice as many, of which the last are outside of D.
  if (variant.streams_k() && 2 * row_tiles * col_tiles * batch > kMaxStreamSteps / stages) {
    return StrCat("batch=", batch, " m=", m, " n=", n, " k=", k, " are more than ",
                  kMaxStreamSteps / 2, " blocks of ", config.block_m(), "x", config.block_n(), "x",
                  stage, "; divide the matrix");
  }
  return "";
}

// Rows of an operand, `elements` apart, of `size` bytes each. `along`: what they lie along.
std::string RowsWhyNot(const char* name, int64_t rows, const char* along, int64_t extent,
                       int64_t elements, int64_t size) {
  if (rows <= 1) return "";
  if (elements < extent) {
    return StrCat("rows of ", name, " are ", elements, " elements apart, less than ", along, "=",
                  extent, ": they overlap; copy ", name);
  }
  if (elements > kTmaMaxStride / size) {
    return StrCat("rows of ", name, " are ", elements, " elements apart, above ",
                  kTmaMaxStride / size, "; copy ", name);
  }
  const int64_t stride = elements * size;
  if (stride % kTmaBytes != 0) {
    return StrCat(along, "=", extent, ": rows of ", name, " are ", stride,
                  " bytes apart, not a multiple of ", kTmaBytes, "; pad ld", name, " to ",
                  RoundUp(stride, kTmaBytes) / size);
  }
  return "";
}

std::string ScalesWhyNot(Mma mma, const char* name, ScaleGranularity given,
                         ScaleGranularity block) {
  std::string wanted;
  switch (KindOf(mma).scales) {
    case KindScales::kBlocks:
      if (given == block) return "";
      wanted = std::string(Name(block));
      break;
    case KindScales::kNone:
      if (given == ScaleGranularity::kNone) return "";
      wanted = "none";
      break;
    case KindScales::kAtTheEnd:
      if (given == ScaleGranularity::kNone || given == ScaleGranularity::kPerTensor ||
          given == ScaleGranularity::kPerRow) {
        return "";
      }
      wanted = "none, tensor or row";
      break;
  }
  return StrCat("scales of ", name, " are ", Text(Name(given)), "; these kernels need ", wanted);
}

// `along_rows`: these kernels take it along its rows, of which `extent` is the name.
std::string OperandWhyNot(Mma mma, const char* name, const OperandTraits& operand,
                          ScaleGranularity block, const char* extent, int64_t rows, int64_t k,
                          bool along_rows) {
  const DType multiplied = KindOf(mma).operand;
  if (operand.dtype != multiplied) {
    return StrCat(name, " is ", Text(Name(operand.dtype)), "; these kernels multiply ",
                  Text(Name(multiplied)));
  }
  if (std::string why = ScalesWhyNot(mma, name, operand.granularity, block); !why.empty()) {
    return why;
  }
  const Layout wanted = along_rows ? Layout::kRowsContiguous : Layout::kKContiguous;
  if (operand.layout != wanted) {
    return StrCat(name, " is not contiguous along k; copy or transpose it");
  }
  const int64_t size = SizeBytes(multiplied), apart = operand.leading_stride;
  std::string why = along_rows ? RowsWhyNot(name, k, extent, rows, apart, size)
                               : RowsWhyNot(name, rows, "k", k, apart, size);
  if (!why.empty()) return why;
  if (operand.alignment_bytes % kTmaBytes != 0) {
    return StrCat(name, " or its batches start at multiples of ", operand.alignment_bytes,
                  " bytes only; place them at multiples of ", kTmaBytes);
  }
  return "";
}

// d and, where there is one, c. Any alignment of rows is served; only elements must be aligned.
std::string ResultWhyNot(const MatmulProblem& problem) {
  const OperandTraits& d = problem.d;
  if (d.dtype != DType::kF32 && d.dtype != DType::kBF16 && d.dtype != DType::kF16) {
    return StrCat("d is ", Text(Name(d.dtype)), "; these kernels write f32, bf16 or f16");
  }
  if (d.layout != Layout::kKContiguous) {
    return "d is not contiguous along n; use a row-major d";
  }
  if (d.alignment_bytes % SizeBytes(d.dtype) != 0) {
    return StrCat("rows of d start at multiples of ", d.alignment_bytes,
                  " bytes only; place them at multiples of ", SizeBytes(d.dtype));
  }
  if (problem.m > 1 && d.leading_stride < problem.n) {
    return StrCat("rows of d are ", d.leading_stride, " elements apart, less than n=", problem.n,
                  "; raise ldd");
  }
  return "";
}

// What of scales no kernel takes, nor can be copied for it.
std::string ScalesWhyNot(Mma mma, const AnyGemmArgs& args) {
  if (KindOf(mma).scales == KindScales::kAtTheEnd) {
    constexpr int64_t kMostApart = std::numeric_limits<int32_t>::max();
    for (const ScaleView* scales : {&args.a.scales, &args.b.scales}) {
      if (scales->row_stride <= kMostApart) continue;
      return StrCat("scales are ", scales->row_stride, " floats apart, above ", kMostApart,
                    "; copy them to be dense");
    }
  }
  if (CopiesOf(args).scratch_bytes > kMaxScratchBytes) {
    return StrCat("copies of its scales take more than ", kMaxScratchBytes,
                  " bytes; lay out a's along m and b's along k");
  }
  return "";
}

// What no store adds.
std::string AddendsWhyNot(const MatmulProblem& p) {
  if (p.has_c && p.c.layout != Layout::kKContiguous) {
    return "c is not contiguous along n; use a row-major c";
  }
  if (p.has_bias && p.bias_stride != 1) {
    return StrCat("bias has a stride of ", p.bias_stride, "; copy it to be dense");
  }
  return "";
}

std::string AddressWhyNot(const char* name, const void* pointer, int64_t alignment) {
  if (pointer == nullptr) return StrCat(name, " is null; give its address");
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address % alignment == 0) return "";
  return StrCat(name, " is at an address ", address % alignment, " bytes past a multiple of ",
                alignment, "; align it to ", alignment);
}

// The distance between two matrices of a batch, in elements of `size` bytes; 0 shares one.
std::string BatchStrideWhyNot(const char* name, int64_t batch, int64_t stride, int64_t size,
                              int64_t alignment) {
  if (batch <= 1) return "";
  if (stride < 0 || stride > kTmaMaxStride / size) {
    return StrCat("matrices of ", name, " are ", stride, " elements apart, outside 0 to ",
                  kTmaMaxStride / size, "; copy ", name);
  }
  const int64_t bytes = stride * size;
  if (bytes % alignment == 0) return "";
  return StrCat("matrices of ", name, " are ", bytes, " bytes apart, not a multiple of ", alignment,
                "; pad them to ", RoundUp(bytes, alignment));
}

std::string ScalesWhyNot(Mma mma, const GemmArgs& args) {
  if (KindOf(mma).scales == KindScales::kAtTheEnd) {
    for (auto [name, scales] :
         {std::pair{"a_scales", args.a_scales}, {"b_scales", args.b_scales}}) {
      if (scales == nullptr) continue;
      if (std::string why = AddressWhyNot(name, scales, 4); !why.empty()) return why;
    }
    for (auto [name, ld] :
         {std::pair{"a_scales", args.a_scales_ld}, {"b_scales", args.b_scales_ld}}) {
      if (ld >= 0 && ld <= kMaxExtent) continue;
      return StrCat(name, " are ", ld, " floats apart, outside 0 to ", kMaxExtent, "; copy them");
    }
  }
  if (KindOf(mma).scales != KindScales::kBlocks) return "";
  std::string why = AddressWhyNot("a_scales", args.a_scales, kTmaBytes);
  if (why.empty()) why = AddressWhyNot("b_scales", args.b_scales, 4);
  if (why.empty()) {
    why = BatchStrideWhyNot("a_scales", args.batch, args.a_scales_batch, 4, kTmaBytes);
  }
  if (why.empty()) why = BatchStrideWhyNot("b_scales", args.batch, args.b_scales_batch, 4, 4);
  if (!why.empty()) return why;
  const int64_t k_blocks = CeilDiv(args.k, kBlockK);
  if (k_blocks > 1) {
    if (args.a_scales_ld < args.m) {
      return StrCat("a_scales_ld=", args.a_scales_ld, " is below m=", args.m, "; raise it to ",
                    RoundUp(args.m, 4));
    }
    if (args.a_scales_ld % 4 != 0 || args.a_scales_ld > kTmaMaxStride / 4) {
      return StrCat("a_scales_ld=", args.a_scales_ld,
                    " is not a multiple of 4 floats below 2^38 (16-byte rows); pad it to ",
                    RoundUp(args.m, 4));
    }
  }
  const int64_t n_blocks = CeilDiv(args.n, kBlockK);
  if (n_blocks > 1 && args.b_scales_ld < k_blocks) {
    return StrCat("b_scales_ld=", args.b_scales_ld, " is below ceil(k/128)=", k_blocks,
                  "; raise it to ", k_blocks);
  }
  return "";
}

std::string ResultWhyNot(const GemmArgs& args) {
  const int64_t size = args.out == OutType::kF32 ? 4 : 2;
  if (args.m > 1 && args.ldd < args.n) {
    return StrCat("ldd=", args.ldd, " is below n=", args.n, "; raise it to ", args.n);
  }
  if (std::string why = AddressWhyNot("d", args.d, size); !why.empty()) return why;
  if (args.beta != 0) {
    if (std::string why = AddressWhyNot("c", args.c, size); !why.empty()) return why;
  }
  if (args.bias == nullptr) return "";
  return AddressWhyNot("bias", args.bias, args.bias_is_f32 ? 4 : size);
}

}  // namespace

std::string OperandsWhyNot(Mma mma, const MatmulProblem& problem, bool b_along_rows,
                           bool a_along_rows) {
  const MatmulProblem& p = problem;
  std::string why = ExtentsWhyNot(mma, p.batch, p.m, p.n, p.k);
  if (why.empty()) {
    why = OperandWhyNot(mma, "a", p.a, ScaleGranularity::kBlock1x128, "m", p.m, p.k, a_along_rows);
  }
  if (why.empty()) {
    why =
        OperandWhyNot(mma, "b", p.b, ScaleGranularity::kBlock128x128, "n", p.n, p.k, b_along_rows);
  }
  if (!why.empty()) return why;
  if (!p.reads_operands) return "alpha is 0: a and b must not be read";
  if (p.batch > 1 && p.a.batch_stride == 0) {
    return "all matrices of a's batch are one (stride 0); multiply it as one matrix";
  }
  return "";
}

std::string WhyNot(const GemmVariant& variant, const MatmulProblem& problem) {
  const MatmulProblem& p = problem;
  const Mma mma = variant.shape().mma;
  const bool b_along_rows = ReadsAlongRows(variant) && p.b.layout == Layout::kRowsContiguous;
  const bool a_along_rows =
      b_along_rows && ReadsBothAlongRows(variant) && p.a.layout == Layout::kRowsContiguous;
  std::string why = OperandsWhyNot(mma, p, b_along_rows, a_along_rows);
  if (why.empty()) why = ResultWhyNot(p);
  if (why.empty()) why = AddendsWhyNot(p);
  if (why.empty()) why = ScalesWhyNot(mma, UnplacedArgs(p));
  if (why.empty()) why = ConfigWhyNot(variant, p.batch, p.m, p.n, p.k);
  return why;
}

std::string WhyNot(const GemmVariant& variant, const GemmArgs& args) {
  const GemmArgs& g = args;
  const Mma mma = variant.shape().mma;
  const int64_t size = variant.shape().element_bytes();
  std::string why = ExtentsWhyNot(mma, g.batch, g.m, g.n, g.k);
  if (why.empty()) why = AddressWhyNot("a", g.a, kTmaBytes);
  if (why.empty()) why = AddressWhyNot("b", g.b, kTmaBytes);
  if (why.empty() && g.a_along_rows && !(g.b_along_rows && ReadsBothAlongRows(variant))) {
    why = "a is not contiguous along k; copy or transpose it";
  }
  if (why.empty() && g.b_along_rows && !ReadsAlongRows(variant)) {
    why = "b is not contiguous along k; copy or transpose it";
  }
  if (why.empty()) {
    why = g.a_along_rows ? RowsWhyNot("a", g.k, "m", g.m, g.lda, size)
                         : RowsWhyNot("a", g.m, "k", g.k, g.lda, size);
  }
  if (why.empty()) {
    why = g.b_along_rows ? RowsWhyNot("b", g.k, "n", g.n, g.ldb, size)
                         : RowsWhyNot("b", g.n, "k", g.k, g.ldb, size);
  }
  if (why.empty()) why = BatchStrideWhyNot("a", g.batch, g.a_batch, size, kTmaBytes);
  if (why.empty()) why = BatchStrideWhyNot("b", g.batch, g.b_batch, size, kTmaBytes);
  if (why.empty()) why = ScalesWhyNot(mma, g);
  if (why.empty()) why = ResultWhyNot(g);
  if (why.empty()) why = ConfigWhyNot(variant, g.batch, g.m, g.n, g.k);
  return why;
}

}  // namespace gemmd::kernels::cuda
