#include "tests/kernels/contract/scene.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iostream>

#include "kernels/cpu/matmul/reference.h"

namespace gemmd::kernels::contract {
namespace {

constexpr std::byte kPoison{0xff};

uint64_t ChooseSeed(uint64_t seed) {
  if (seed != 0) return seed;
  if (const int given = GTEST_FLAG_GET(random_seed); given != 0) return given;
  return std::random_device()() % 99999 + 1;  // what --gtest_random_seed takes
}

// Calls fn(offset of the element in bytes, its size as a constant) in row-major order.
template <int kSize, class Fn>
void ForEachElementOf(const TensorRef& tensor, Fn fn) {
  int64_t extent[3] = {1, 1, 1};
  int64_t stride[3] = {0, 0, 0};
  for (int i = 0; i < tensor.shape.rank; ++i) {
    extent[3 - tensor.shape.rank + i] = tensor.shape[i];
    stride[3 - tensor.shape.rank + i] = tensor.strides[i];
  }
  for (int64_t h = 0; h < extent[0]; ++h) {
    for (int64_t i = 0; i < extent[1]; ++i) {
      for (int64_t j = 0; j < extent[2]; ++j) {
        fn(tensor.offset_bytes + (h * stride[0] + i * stride[1] + j * stride[2]) * kSize,
           std::integral_constant<int, kSize>());
      }
    }
  }
}

template <class Fn>
void ForEachElement(const TensorRef& tensor, Fn fn) {
  switch (SizeBytes(tensor.dtype)) {
    case 1:
      return ForEachElementOf<1>(tensor, fn);
    case 2:
      return ForEachElementOf<2>(tensor, fn);
    default:
      return ForEachElementOf<4>(tensor, fn);
  }
}

// Mostly positive, so that sums do not cancel, over a few binades of the type.
uint32_t RandomCode(DType dtype, uint64_t random) {
  const uint32_t bits = static_cast<uint32_t>(random);
  const uint32_t negative = random >> 62 == 0;
  switch (dtype) {
    case DType::kF32: {
      const float value = std::ldexp(static_cast<float>(bits >> 8), -24);  // [0, 1)
      return std::bit_cast<uint32_t>(negative ? -value : value);
    }
    case DType::kBF16:  // exponents 2^-4 .. 2^-1
      return (negative << 15) | (123 + (bits & 3)) << 7 | ((bits >> 8) & 0x7f);
    case DType::kF16:
      return (negative << 15) | (11 + (bits & 3)) << 10 | ((bits >> 8) & 0x3ff);
    case DType::kE4M3:  // every finite code
      return (negative << 7) | (bits % 0x7f);
    case DType::kE5M2:  // exponents 2^-4 .. 2^-1
      return (negative << 7) | (11 + (bits & 3)) << 2 | ((bits >> 8) & 0x3);
    case DType::kI8:  // -128 .. 127
      return (negative ? -1 - static_cast<int>(bits & 0x7f) : static_cast<int>(bits & 0x7f)) & 0xff;
    case DType::kI32:
      return bits;
  }
  return 0;
}

}  // namespace

std::string Name(Placement placement) {
  switch (placement) {
    case Placement::kDense:
      return "dense";
    case Placement::kPadded:
      return "padded";
    case Placement::kTransposed:
      return "transposed";
    case Placement::kStrided:
      return "strided";
    case Placement::kColumnMajor:
      return "column-major";
  }
  return "";
}

TensorRef Place(int slot, DType dtype, const Dims& shape, Placement placement, int64_t& bytes) {
  const int size = SizeBytes(dtype);
  TensorRef tensor{slot, 0, dtype, shape, RowMajorStrides(shape)};
  const int last = shape.rank - 1;
  int64_t matrix = last >= 1 ? shape[last - 1] * shape[last] : shape[last];
  switch (placement) {
    case Placement::kDense:
      break;
    case Placement::kPadded:
      tensor.offset_bytes = 5 * size;
      if (last >= 1) {
        tensor.strides[last - 1] = shape[last] + 3;
        matrix = shape[last - 1] * (shape[last] + 3);
      }
      break;
    case Placement::kTransposed:
    case Placement::kColumnMajor:
      if (last >= 1) {
        tensor.strides[last] = shape[last - 1];
        tensor.strides[last - 1] = 1;
      }
      break;
    case Placement::kStrided:
      tensor.offset_bytes = size;
      tensor.strides[last] = 2;
      if (last >= 1) tensor.strides[last - 1] = 2 * shape[last] + 1;
      matrix = last >= 1 ? shape[last - 1] * (2 * shape[last] + 1) : 2 * matrix;
      break;
  }
  const bool packed = placement == Placement::kDense || placement == Placement::kColumnMajor;
  if (shape.rank == 3) tensor.strides[0] = matrix + (packed ? 0 : 7);
  bytes = tensor.offset_bytes + (shape.rank == 3 ? shape[0] * tensor.strides[0] : matrix) * size;
  return tensor;
}

Scene::Scene(uint64_t seed) : seed_(ChooseSeed(seed)), random_(seed_) {
  if (seed == 0) std::cout << "seed " << seed_ << " (repeat with --gtest_random_seed)\n";
}

int64_t Scene::Between(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random_);
}

TensorRef Scene::Poisoned(DType dtype, const Dims& shape, Placement placement) {
  int64_t bytes = 0;
  const TensorRef tensor = Place(static_cast<int>(slots_.size()), dtype, shape, placement, bytes);
  slots_.emplace_back(bytes, kPoison);
  return tensor;
}

TensorRef Scene::Random(DType dtype, const Dims& shape, Placement placement) {
  const TensorRef tensor = Poisoned(dtype, shape, placement);
  std::byte* data = slots_[tensor.slot].data();
  ForEachElement(tensor, [&](int64_t offset, auto size) {
    const uint32_t code = RandomCode(dtype, random_());
    std::memcpy(data + offset, &code, size);
  });
  return tensor;
}

TensorRef Scene::Scales(const Dims& shape, ScaleGranularity granularity, Placement placement) {
  const TensorRef tensor = Poisoned(DType::kF32, ScaleShape(shape, granularity), placement);
  std::byte* data = slots_[tensor.slot].data();
  ForEachElement(tensor, [&](int64_t offset, auto) {
    const float scale = std::uniform_real_distribution<float>(0.25f, 4.0f)(random_);
    std::memcpy(data + offset, &scale, sizeof(scale));
  });
  return tensor;
}

Operand Scene::RandomOperand(DType dtype, const Dims& shape, ScaleGranularity granularity,
                             Placement placement) {
  Operand operand{Random(dtype, shape, placement), granularity, {}};
  if (granularity != ScaleGranularity::kNone) {
    operand.scales = Scales(shape, granularity, placement);
  }
  return operand;
}

void Scene::Set(const TensorRef& tensor, std::initializer_list<int64_t> index, double value) {
  int64_t at = 0;
  int i = 0;
  for (int64_t x : index) at += x * tensor.strides[i++];
  const uint32_t code = EncodeReference(tensor.dtype, value);
  std::memcpy(slots_[tensor.slot].data() + tensor.offset_bytes + at * SizeBytes(tensor.dtype),
              &code, SizeBytes(tensor.dtype));
}

TensorRef Scene::Numbers(const Dims& shape, absl::Span<const int32_t> values) {
  const TensorRef tensor = Poisoned(DType::kI32, shape);
  std::memcpy(slots_[tensor.slot].data(), values.data(), values.size() * sizeof(int32_t));
  return tensor;
}

absl::StatusOr<Outcome> Scene::TryRun(Executor& executor, absl::Span<const Op> ops) const {
  return executor.Run(ops, slots_, inputs, output_bytes);
}

Outcome Scene::Run(Executor& executor, absl::Span<const Op> ops) {
  absl::StatusOr<Outcome> outcome = TryRun(executor, ops);
  if (!outcome.ok()) {
    ADD_FAILURE() << outcome.status();
    return {slots_, inputs, {}};
  }
  return *std::move(outcome);
}

Bindings Scene::Reference() {
  Bindings bindings;
  for (Bytes& slot : slots_) bindings.slots.push_back(slot.data());
  return bindings;
}

std::vector<double> Values(const Outcome& outcome, const TensorRef& tensor) {
  return ReadTensor(tensor, outcome.slots[tensor.slot].data());
}

void ExpectOnlyElementsWritten(const Scene& scene, const Outcome& outcome,
                               const TensorRef& tensor) {
  Bytes before = scene.slots()[tensor.slot];
  const Bytes& after = outcome.slots[tensor.slot];
  ForEachElement(tensor, [&](int64_t offset, auto size) {
    std::memcpy(before.data() + offset, after.data() + offset, size);
  });
  EXPECT_TRUE(before == after) << "bytes between or around the elements were written";
}

double DecodeReference(DType dtype, uint32_t code) {
  std::byte storage[4];
  std::memcpy(storage, &code, sizeof(code));
  return ReadTensor({0, 0, dtype, MakeDims({1}), MakeDims({1})}, storage)[0];
}

uint32_t EncodeReference(DType dtype, double value) {
  if (dtype == DType::kF32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (dtype == DType::kI32) return static_cast<uint32_t>(static_cast<int32_t>(value));
  if (dtype == DType::kI8) {
    if (std::isnan(value)) return 0;
    return static_cast<uint32_t>(
               static_cast<int>(std::nearbyint(std::clamp(value, -127.0, 127.0)))) &
           0xff;
  }
  const int bits = 8 * SizeBytes(dtype);
  const uint32_t sign = std::signbit(value) ? 1u << (bits - 1) : 0;
  const double magnitude = std::abs(value);
  // Positive codes count up with their values; the first is zero, `top` the largest finite one.
  const uint32_t top = dtype == DType::kE4M3   ? 0x7e
                       : dtype == DType::kE5M2 ? 0x7b
                       : dtype == DType::kBF16 ? 0x7f7f
                                               : 0x7bff;
  if (std::isnan(value)) {
    return sign | (dtype == DType::kE4M3   ? 0x7f
                   : dtype == DType::kE5M2 ? 0x7e
                   : dtype == DType::kBF16 ? 0x7fc0
                                           : 0x7e00);
  }
  uint32_t low = 0;  // the largest code not above the magnitude
  uint32_t high = top;
  while (low < high) {
    const uint32_t middle = (low + high + 1) / 2;
    if (DecodeReference(dtype, middle) <= magnitude) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const double below = DecodeReference(dtype, low);
  // Beyond the largest, the next number there would be decides between it and infinity.
  const double above =
      low == top ? 2 * below - DecodeReference(dtype, low - 1) : DecodeReference(dtype, low + 1);
  const double middle = below + (above - below) / 2;
  uint32_t code = low;
  if (magnitude > middle || (magnitude == middle && (low & 1))) code = low + 1;
  if (dtype == DType::kE4M3) code = std::min(code, top);
  return sign | code;
}

}  // namespace gemmd::kernels::contract
