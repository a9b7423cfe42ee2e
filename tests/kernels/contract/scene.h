// Scene: slots with random tensors in them, as a test sets them up. Everything that is not an
// element of an input is poison: bytes 0xff, which are NaN in every floating-point type here.

#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/contract/executor.h"

namespace gemmd::kernels::contract {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// How a tensor lies in its slot.
enum class Placement {
  kDense,        // row-major
  kPadded,       // row-major, rows longer than the matrix, not at the slot's start
  kTransposed,   // column-major
  kStrided,      // unit stride nowhere
  kColumnMajor,  // column-major, matrices of a batch one behind the other
};
inline constexpr Placement kPlacements[] = {Placement::kDense, Placement::kPadded,
                                            Placement::kTransposed, Placement::kStrided};
std::string Name(Placement placement);

class Scene {
 public:
  // 0 takes a fresh seed, or --gtest_random_seed when that is given. Prints it.
  explicit Scene(uint64_t seed = 0);

  // A new slot with a tensor of random finite values in it.
  TensorRef Random(DType dtype, const Dims& shape, Placement placement = Placement::kDense);
  // Positive scales for values of `shape`, and an operand with them.
  TensorRef Scales(const Dims& shape, ScaleGranularity granularity,
                   Placement placement = Placement::kDense);
  Operand RandomOperand(DType dtype, const Dims& shape, ScaleGranularity granularity,
                        Placement placement = Placement::kDense);
  // A new slot with room for a tensor, all poison.
  TensorRef Poisoned(DType dtype, const Dims& shape, Placement placement = Placement::kDense);

  // A new slot with these, dense, as I32.
  TensorRef Numbers(const Dims& shape, absl::Span<const int32_t> values);

  // Sets one element, e.g. to NaN; `value` must be exact in the tensor's type.
  void Set(const TensorRef& tensor, std::initializer_list<int64_t> index, double value);

  // Runs `ops` on the scene's slots, which stay as they are. Fails the test on an error.
  Outcome Run(Executor& executor, absl::Span<const Op> ops);
  Outcome Run(Executor& executor, const Op& op) { return Run(executor, absl::MakeSpan(&op, 1)); }
  Outcome Run(Executor& executor, std::initializer_list<Op> ops) {
    return Run(executor, absl::MakeSpan(ops.begin(), ops.size()));
  }
  absl::StatusOr<Outcome> TryRun(Executor& executor, absl::Span<const Op> ops) const;

  // Takes over what a run left, to go on from there.
  void Replace(const Outcome& outcome) { slots_ = outcome.slots; }

  // The reference's view of the slots, valid until one is added.
  Bindings Reference();
  const std::vector<Bytes>& slots() const { return slots_; }
  std::mt19937_64& random() { return random_; }
  int64_t Between(int64_t low, int64_t high);
  uint64_t seed() const { return seed_; }

  std::vector<Bytes> inputs;          // by WriteOp::input
  std::vector<int64_t> output_bytes;  // by ReadOp::output

 private:
  uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<Bytes> slots_;
};

// A tensor of `shape` so placed, and how many bytes its slot needs.
TensorRef Place(int slot, DType dtype, const Dims& shape, Placement placement, int64_t& bytes);

// `tensor`'s elements in `outcome`, as float64.
std::vector<double> Values(const Outcome& outcome, const TensorRef& tensor);

// Fails unless every byte of the tensor's slot that belongs to none of its elements is as before.
void ExpectOnlyElementsWritten(const Scene& scene, const Outcome& outcome, const TensorRef& tensor);

// `value` in `dtype`, to the nearest, ties to even, by search over the type's own codes; FP32 by
// cast. Saturates as ConvertOp does. Slow and independent of every backend.
uint32_t EncodeReference(DType dtype, double value);
double DecodeReference(DType dtype, uint32_t code);

}  // namespace gemmd::kernels::contract
