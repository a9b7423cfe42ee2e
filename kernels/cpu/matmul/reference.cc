#include "kernels/cpu/matmul/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

namespace gemmd::kernels {
namespace {

// A floating-point code of `exponent_bits` and `fraction_bits`, by the definition of the format.
double Decode(uint32_t code, int exponent_bits, int fraction_bits, bool has_infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int max_exponent = (1 << exponent_bits) - 1;
  const int fraction_max = (1 << fraction_bits) - 1;
  const int fraction = static_cast<int>(code) & fraction_max;
  const int exponent = static_cast<int>(code >> fraction_bits) & max_exponent;
  const double sign = (code >> (exponent_bits + fraction_bits)) & 1 ? -1.0 : 1.0;
  if (exponent == max_exponent && has_infinity) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == max_exponent && !has_infinity && fraction == fraction_max) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

// Every code of a floating-point type of one or two bytes, decoded once.
std::vector<double> DecodeAll(DType dtype) {
  std::vector<double> values(size_t{1} << (8 * SizeBytes(dtype)));
  for (size_t code = 0; code < values.size(); ++code) {
    const uint32_t bits = static_cast<uint32_t>(code);
    values[code] = dtype == DType::kBF16   ? Decode(bits, 8, 7, true)
                   : dtype == DType::kF16  ? Decode(bits, 5, 10, true)
                   : dtype == DType::kE4M3 ? Decode(bits, 4, 3, false)
                                           : Decode(bits, 5, 2, true);
  }
  return values;
}

const std::vector<double>& Decoded(DType dtype) {
  static const auto& bf16 = *new std::vector<double>(DecodeAll(DType::kBF16));
  static const auto& f16 = *new std::vector<double>(DecodeAll(DType::kF16));
  static const auto& e4m3 = *new std::vector<double>(DecodeAll(DType::kE4M3));
  static const auto& e5m2 = *new std::vector<double>(DecodeAll(DType::kE5M2));
  return dtype == DType::kBF16   ? bf16
         : dtype == DType::kF16  ? f16
         : dtype == DType::kE4M3 ? e4m3
                                 : e5m2;
}

// Shapes padded to rank 3 with leading ones.
struct Shape3 {
  int64_t extent[3] = {1, 1, 1};
  int64_t stride[3] = {0, 0, 0};
};

Shape3 Pad(const TensorRef& tensor) {
  Shape3 padded;
  for (int i = 0; i < tensor.shape.rank; ++i) {
    padded.extent[3 - tensor.shape.rank + i] = tensor.shape[i];
    padded.stride[3 - tensor.shape.rank + i] = tensor.strides[i];
  }
  return padded;
}

// The elements in row-major order. `Code` is what an element is stored as, little-endian as
// everywhere in gemmd.
template <class Code, class DecodeFn>
std::vector<double> Read(const Shape3& shape, const std::byte* base, DecodeFn decode) {
  constexpr int64_t kSize = sizeof(Code);
  std::vector<double> values(shape.extent[0] * shape.extent[1] * shape.extent[2]);
  double* out = values.data();
  for (int64_t h = 0; h < shape.extent[0]; ++h) {
    for (int64_t i = 0; i < shape.extent[1]; ++i) {
      const std::byte* row = base + (h * shape.stride[0] + i * shape.stride[1]) * kSize;
      for (int64_t j = 0; j < shape.extent[2]; ++j) {
        Code code;
        std::memcpy(&code, row + j * shape.stride[2] * kSize, kSize);
        *out++ = decode(code);
      }
    }
  }
  return values;
}

struct ByTable {
  const std::vector<double>& values;
  double operator()(uint32_t code) const { return values[code]; }
};

// Two columns, as the registers of every x86-64 hold them: each is summed by itself and in order.
using Pair = double __attribute__((vector_size(2 * sizeof(double))));
constexpr int64_t kPairs = 4;
constexpr int64_t kColumns = 2 * kPairs;

// out[m, n] = a[m, k] . b[n, k]^T, rows [begin, end); columns in groups, interleaved.
void MultiplyRows(const double* a, const double* b, double* out, int64_t n, int64_t k,
                  int64_t begin, int64_t end) {
  std::vector<Pair> group(kPairs * k);
  for (int64_t j = 0; j < n; j += kColumns) {
    for (int64_t c = 0; c < kColumns; ++c) {
      for (int64_t x = 0; x < k; ++x) {
        group[x * kPairs + c / 2][c % 2] = j + c < n ? b[(j + c) * k + x] : 0.0;
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      Pair sums[kPairs] = {};
      for (int64_t x = 0; x < k; ++x) {
        for (int64_t p = 0; p < kPairs; ++p) sums[p] += a[i * k + x] * group[x * kPairs + p];
      }
      for (int64_t c = 0; c < kColumns && j + c < n; ++c) out[i * n + j + c] = sums[c / 2][c % 2];
    }
  }
}

void Multiply(const double* a, const double* b, double* out, int64_t m, int64_t n, int64_t k) {
  if (1.0 * m * n * k < 1e6) return MultiplyRows(a, b, out, n, k, 0, m);
  std::thread other([&] { MultiplyRows(a, b, out, n, k, m / 2, m); });
  MultiplyRows(a, b, out, n, k, 0, m / 2);
  other.join();
}

}  // namespace

std::vector<double> ReadTensor(const TensorRef& tensor, const std::byte* slot) {
  const Shape3 shape = Pad(tensor);
  const std::byte* base = slot + tensor.offset_bytes;
  switch (tensor.dtype) {
    case DType::kF32:
      return Read<float>(shape, base, [](float value) { return double{value}; });
    case DType::kI32:
      return Read<int32_t>(shape, base, [](int32_t value) { return double{1} * value; });
    case DType::kI8:
      return Read<int8_t>(shape, base, [](int8_t value) { return double{1} * value; });
    case DType::kE4M3:
    case DType::kE5M2:
      return Read<uint8_t>(shape, base, ByTable{Decoded(tensor.dtype)});
    case DType::kBF16:
    case DType::kF16:
      return Read<uint16_t>(shape, base, ByTable{Decoded(tensor.dtype)});
  }
  return {};
}

std::vector<double> ReadTensor(const TensorRef& tensor, const Bindings& bindings) {
  return ReadTensor(tensor, bindings.slots[tensor.slot]);
}

std::vector<double> Dequantize(const Operand& operand, const Bindings& bindings) {
  std::vector<double> values = ReadTensor(operand.values, bindings);
  if (!operand.scales) return values;
  const std::vector<double> scales = ReadTensor(*operand.scales, bindings);
  const Shape3 shape = Pad(operand.values);
  const int64_t rows = shape.extent[1];
  const int64_t k = shape.extent[2];
  const int64_t k_blocks = (k + kScaleBlock - 1) / kScaleBlock;
  const int64_t row_blocks = (rows + kScaleBlock - 1) / kScaleBlock;
  double* row = values.data();
  for (int64_t h = 0; h < shape.extent[0]; ++h) {
    for (int64_t i = 0; i < rows; ++i, row += k) {
      int64_t first = 0;    // the scale of the row's first element,
      int64_t columns = k;  // and how many elements share one
      switch (operand.granularity) {
        case ScaleGranularity::kNone:
        case ScaleGranularity::kPerTensor:
          first = scales.size() == 1 ? 0 : h;  // shared by the batch
          break;
        case ScaleGranularity::kPerRow:
          first = h * rows + i;
          break;
        case ScaleGranularity::kBlock1x128:
          first = (h * rows + i) * k_blocks;
          columns = kScaleBlock;
          break;
        case ScaleGranularity::kBlock128x128:
          first = (h * row_blocks + i / kScaleBlock) * k_blocks;
          columns = kScaleBlock;
          break;
      }
      for (int64_t from = 0; from < k; from += columns) {
        const double scale = scales[first + from / columns];
        const int64_t end = std::min(k, from + columns);
        for (int64_t j = from; j < end; ++j) row[j] *= scale;
      }
    }
  }
  return values;
}

std::vector<double> ReferenceMatmul(const MatmulOp& op, const Bindings& bindings) {
  const Shape3 a_shape = Pad(op.a.values);
  const int64_t batch = a_shape.extent[0];
  const int64_t m = a_shape.extent[1];
  const int64_t k = a_shape.extent[2];
  const int64_t n = Pad(op.b.values).extent[1];
  const bool b_batched = op.b.values.shape.rank == 3;
  std::vector<double> d(batch * m * n, 0.0);
  if (op.alpha != 0) {
    const std::vector<double> a = Dequantize(op.a, bindings);
    const std::vector<double> b = Dequantize(op.b, bindings);
    for (int64_t h = 0; h < batch; ++h) {
      Multiply(a.data() + h * m * k, b.data() + (b_batched ? h * n * k : 0), d.data() + h * m * n,
               m, n, k);
    }
  }
  std::vector<double> c;
  std::vector<double> bias;
  if (op.c && op.beta != 0) c = ReadTensor(*op.c, bindings);
  if (op.bias) bias = ReadTensor(*op.bias, bindings);
  for (int64_t i = 0; i < batch * m * n; ++i) {
    double value = op.alpha * d[i];
    if (!c.empty()) value += op.beta * c[i];
    if (!bias.empty()) value += bias[i % n];
    d[i] = ReferenceActivation(op.activation, value);
  }
  return d;
}

double ReferenceActivation(Activation activation, double x) {
  if (activation == Activation::kNone || std::isnan(x)) return x;
  if (x == -std::numeric_limits<double>::infinity()) return 0;
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh: {
      // tanh(u) + 1 = 2 / (1 + e^(-2u)): the sum itself would cancel for negative u.
      const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case Activation::kGeluErf:
      return x * std::erfc(-x / M_SQRT2) / 2;
    case Activation::kReluSquared:
      return x < 0 ? 0 : x * x;
  }
  return x;
}

std::vector<double> ReferenceGated(const GatedOp& op, const Bindings& bindings) {
  const std::vector<double> src = ReadTensor(op.src, bindings);
  const int64_t n = op.dst.shape[op.dst.shape.rank - 1];
  const int64_t period = op.period == 0 ? n : op.period;
  const int64_t ups = op.alone ? 0 : 1;
  std::vector<double> dst(src.size() / (1 + ups));
  for (size_t i = 0; i < dst.size(); ++i) {
    const int64_t col = static_cast<int64_t>(i) % n;
    const size_t gate_at = op.alone ? i : i / n * 2 * n + col / period * 2 * period + col % period;
    double gate = src[gate_at];
    double up = op.alone ? 0 : src[gate_at + period];
    if (op.limit > 0) {
      if (gate > op.limit) gate = op.limit;
      if (up > op.limit) up = op.limit;
      if (up < -op.limit) up = -op.limit;
    }
    // x * sigmoid(alpha * x) = silu(alpha * x) / alpha
    const double alpha = op.activation == Activation::kSilu ? op.alpha : 1;
    dst[i] = ReferenceActivation(op.activation, alpha * gate) / alpha;
    if (!op.alone) dst[i] *= up + op.up_offset;
  }
  return dst;
}

double RelativeError(absl::Span<const double> out, absl::Span<const double> ref) {
  if (out.size() != ref.size()) return std::numeric_limits<double>::quiet_NaN();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < ref.size(); ++i) {
    difference += (out[i] - ref[i]) * (out[i] - ref[i]);
    norm += ref[i] * ref[i];
  }
  if (difference == 0 && norm == 0) return 0;
  return std::sqrt(difference) / std::sqrt(norm);
}

}  // namespace gemmd::kernels
