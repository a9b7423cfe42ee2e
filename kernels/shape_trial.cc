#include "kernels/shape_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/text.h"

namespace gemmd::kernels {
namespace {

constexpr int64_t kMostExtent = 1 << 20;
constexpr int64_t kAlignment = 256;
// The fastest kernel is measured until its times add up to so much, within TuneOptions' rounds.
constexpr double kEnoughSeconds = 1e-3;
// A kernel that is behind the fastest by more than a part of its time and what chance explains is
// not measured again: near ties, which take longest to tell apart, get the time. Seen on an H200:
// single times of one kernel lie 0.5 us around their median, whatever the kernel takes.
constexpr double kBehind = 1.02;
constexpr double kDoubtSeconds = 2.5e-6;

enum Slot { kA, kAScales, kB, kBScales, kD, kFlush, kSlots };

int64_t DivideUp(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }
int64_t RoundUp(int64_t value, int64_t step) { return DivideUp(value, step) * step; }

int64_t SpanBytes(const TensorRef& tensor) { return TouchedBytes(tensor)->end; }

TensorRef FlushRef(int64_t bytes) {
  return {.slot = kFlush,
          .dtype = DType::kF32,
          .shape = MakeDims({1, bytes / 4}),
          .strides = MakeDims({bytes / 4, 1})};
}

// Where each slot begins in one allocation; the last is its size.
std::vector<int64_t> Offsets(const MatmulOp& op, int64_t flush_bytes) {
  std::vector<int64_t> offsets = {0};
  for (const int64_t bytes :
       {SpanBytes(op.a.values), SpanBytes(*op.a.scales), SpanBytes(op.b.values),
        SpanBytes(*op.b.scales), SpanBytes(op.d), flush_bytes}) {
    offsets.push_back(offsets.back() + RoundUp(bytes, kAlignment));
  }
  return offsets;
}

// Random numbers: with zeros a chip draws less power, and runs faster, than with a model's weights.
std::vector<std::byte> RandomE4m3(size_t count) {
  std::mt19937 random(20);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) {
    const auto value = static_cast<uint8_t>(random());
    byte = static_cast<std::byte>((value & 0x7f) == 0x7f ? value - 1 : value);  // no NaN
  }
  return bytes;
}

std::vector<std::byte> RandomScales(size_t count) {
  std::mt19937 random(21);
  std::uniform_real_distribution<float> scale(0.005f, 0.02f);
  std::vector<std::byte> bytes(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    const float value = scale(random);
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

// Writes `pattern` again and again until `bytes` from `offset` are full.
absl::Status FillWith(Memory& memory, int64_t offset, int64_t bytes,
                      const std::vector<std::byte>& pattern) {
  std::vector<absl::Span<const std::byte>> sources;
  for (int64_t left = bytes; left > 0;) {
    const auto part = std::min<int64_t>(left, static_cast<int64_t>(pattern.size()));
    sources.push_back(absl::MakeConstSpan(pattern.data(), part));
    left -= part;
  }
  return memory.Gather(offset, sources);
}

struct Operands {
  std::unique_ptr<Memory> memory;
  Bindings bindings;
};

absl::StatusOr<Operands> MakeOperands(Backend& backend, const MatmulOp& op, int64_t flush_bytes) {
  const std::vector<int64_t> offsets = Offsets(op, flush_bytes);
  auto memory = backend.Allocate(offsets.back(), MemoryKind::kDevice);
  if (!memory.ok()) {
    return absl::Status(
        memory.status().code(),
        absl::StrCat("no memory for operands to measure with: ", memory.status().message()));
  }
  Operands operands{*std::move(memory), {}};
  static const auto& values = *new std::vector<std::byte>(RandomE4m3(1 << 20));
  static const auto& scales = *new std::vector<std::byte>(RandomScales(1 << 16));
  for (const auto& [slot, tensor, pattern] : {std::tuple(kA, &op.a.values, &values),
                                              {kAScales, &*op.a.scales, &scales},
                                              {kB, &op.b.values, &values},
                                              {kBScales, &*op.b.scales, &scales}}) {
    absl::Status filled = FillWith(*operands.memory, offsets[slot], SpanBytes(*tensor), *pattern);
    if (!filled.ok()) return filled;
  }
  for (int slot = 0; slot < kSlots; ++slot) {
    operands.bindings.slots.push_back(operands.memory->address() + offsets[slot]);
  }
  return operands;
}

// Of two in the middle the lesser: what disturbs a measurement makes it longer.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One kernel with what was measured of it.
struct Contender {
  std::string kernel;
  double estimate = 0;  // of the flush and one multiplication
  std::vector<double> seconds;
  double median() const { return Median(seconds); }
};

FillOp Flush(const Tuner& tuner) { return {.dst = FlushRef(tuner.flush_bytes()), .value = 1}; }

absl::StatusOr<std::vector<Contender>> MakeContenders(Tuner& tuner, const TuneShape& shape,
                                                      MatmulOp op, const TuneOptions& options) {
  auto kernels = tuner.Contenders(shape, options.kernels);
  if (!kernels.ok()) return kernels.status();
  std::vector<Contender> contenders;
  for (std::string& kernel : *kernels) {
    op.kernel = kernel;
    auto once = tuner.CompileTrial({{Flush(tuner), op}});
    if (!once.ok()) return once.status();
    const double seconds = (*once)->estimated_seconds();
    if (seconds > kMostTrialSeconds) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "one multiplication takes the device about %.0f ms, limit %.0f ms; measure fewer rows",
          seconds * 1e3, kMostTrialSeconds * 1e3));
    }
    contenders.push_back({std::move(kernel), seconds, {}});
  }
  return contenders;
}

// Runs each of `turn` once, in that order and behind a flush, and takes their times.
absl::Status RunTurn(Tuner& tuner, MatmulOp op, absl::Span<Contender* const> turn,
                     const Bindings& bindings, RunTrial run, double& device_seconds) {
  std::vector<Op> ops;
  for (const Contender* one : turn) {
    op.kernel = one->kernel;
    ops.insert(ops.end(), {Flush(tuner), op});
  }
  auto program = tuner.CompileTrial(ops);
  if (!program.ok()) return program.status();
  auto result = run(*program, bindings);
  if (!result.ok()) return result.status();
  device_seconds += result->device_seconds;
  if (!result->ops_timed || result->op_seconds.size() != ops.size()) {
    return absl::InternalError(
        absl::StrCat("the device timed none of the ops of ", turn[0]->kernel));
  }
  for (size_t i = 0; i < turn.size(); ++i) {
    turn[i]->seconds.push_back(std::max(1e-9, static_cast<double>(result->op_seconds[2 * i + 1])));
  }
  return absl::OkStatus();
}

// Kernels take turns, and in another order each round: one that follows itself would find its own
// code in the processors' caches, as it does not where it serves. `order` is the last round's.
absl::Status RunRound(Tuner& tuner, const MatmulOp& op, std::vector<Contender*>& order, int round,
                      const TuneOptions& options, const Bindings& bindings, RunTrial run,
                      double& device_seconds) {
  if (round > 0) {
    const Contender* const last = order.back();
    std::shuffle(order.begin(), order.end(), std::mt19937(round));
    if (order.front() == last) std::swap(order.front(), order.back());
  }
  for (size_t first = 0; first < order.size();) {
    size_t end = first;
    double seconds = 0;
    do {
      seconds += order[end++]->estimate;
    } while (end < order.size() && seconds + order[end]->estimate <= options.program_seconds);
    const auto turn = absl::MakeConstSpan(order).subspan(first, end - first);
    absl::Status ran = RunTurn(tuner, op, turn, bindings, run, device_seconds);
    if (!ran.ok()) return ran;
    first = end;
  }
  return absl::OkStatus();
}

// The fastest's median; takes from `near` those that are too far behind it by now.
double DropSlower(int rounds, std::vector<Contender*>& near) {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Contender* one : near) fastest = std::min(fastest, one->median());
  const double most = kBehind * fastest + kDoubtSeconds / std::sqrt(rounds);
  std::erase_if(near, [&](const auto* one) { return one->median() > most; });
  return fastest;
}

}  // namespace

MatmulOp TrialMatmul(const TuneShape& shape) {
  const auto [m, n, k, out] = shape;
  const int64_t blocks = DivideUp(k, kScaleBlock);
  const int64_t rows = RoundUp(m, 4);  // scales of A as TMA reads them: along the rows
  MatmulOp op;
  op.a = {.values = {.slot = kA,
                     .dtype = DType::kE4M3,
                     .shape = MakeDims({m, k}),
                     .strides = MakeDims({k, 1})},
          .granularity = ScaleGranularity::kBlock1x128,
          .scales = TensorRef{.slot = kAScales,
                              .dtype = DType::kF32,
                              .shape = MakeDims({m, blocks}),
                              .strides = MakeDims({1, rows})}};
  op.b = {.values = {.slot = kB,
                     .dtype = DType::kE4M3,
                     .shape = MakeDims({n, k}),
                     .strides = MakeDims({k, 1})},
          .granularity = ScaleGranularity::kBlock128x128,
          .scales = TensorRef{.slot = kBScales,
                              .dtype = DType::kF32,
                              .shape = MakeDims({DivideUp(n, kScaleBlock), blocks}),
                              .strides = MakeDims({blocks, 1})}};
  op.d = {.slot = kD, .dtype = out, .shape = MakeDims({m, n}), .strides = MakeDims({n, 1})};
  return op;
}

absl::Status CheckTuneShape(const TuneShape& shape) {
  for (const auto& [name, value, limit] : {std::tuple("m", shape.m, kMostTunedRows),
                                           {"n", shape.n, kMostExtent},
                                           {"k", shape.k, kMostExtent}}) {
    if (value >= 1 && value <= limit) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, "=", value, " is not from 1 to ", limit,
                                                   "; larger ones are the cost model's to choose"));
  }
  if (shape.out == DType::kBF16 || shape.out == DType::kF16 || shape.out == DType::kF32) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("output_dtype ", Text(Name(shape.out)),
                                                 " is no result of a matmul; give f32, bf16 or "
                                                 "f16"));
}

int64_t TrialBytes(const TuneShape& shape, int64_t flush_bytes) {
  return CheckTuneShape(shape).ok() ? Offsets(TrialMatmul(shape), flush_bytes).back() : 0;
}

absl::StatusOr<TunedShape> TuneOneShape(Backend& backend, const TuneShape& shape,
                                        const TuneOptions& options, RunTrial run) {
  if (absl::Status valid = CheckTuneShape(shape); !valid.ok()) return valid;
  Tuner* const tuner = backend.tuner();
  if (tuner == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        "device ", backend.info().name,
        " has no choice of kernels to measure; tune a GPU (cuda:0), whose FP8 matmuls have one"));
  }
  const int64_t bytes = TrialBytes(shape, tuner->flush_bytes());
  if (bytes > options.max_memory_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(ToString(shape), " needs ", bytes, " bytes to be measured, limit ",
                     options.max_memory_bytes,
                     "; raise tuning.max_memory_bytes or measure fewer "
                     "rows"));
  }
  auto before = tuner->Current(shape);
  if (!before.ok()) return before.status();
  const MatmulOp op = TrialMatmul(shape);
  auto contenders = MakeContenders(*tuner, shape, op, options);
  if (!contenders.ok()) return contenders.status();
  auto operands = MakeOperands(backend, op, tuner->flush_bytes());
  if (!operands.ok()) return operands.status();
  TunedShape tuned{
      .shape = shape, .before = std::string(before->kernel), .reason_before = before->reason};
  std::vector<Contender*> near;
  for (Contender& contender : *contenders) near.push_back(&contender);
  int rounds = options.rounds;
  for (int round = 0; round <= rounds; ++round) {
    absl::Status ran =
        RunRound(*tuner, op, near, round, options, operands->bindings, run, tuned.device_seconds);
    if (!ran.ok()) return ran;
    if (round == 0) {  // a kernel's first run in a process takes longer: its code is loaded
      for (Contender* one : near) one->seconds.clear();
      continue;
    }
    const double fastest = DropSlower(round, near);
    if (near.size() == 1) break;
    const double enough = std::min(1e3, std::ceil(kEnoughSeconds / fastest));
    rounds = std::clamp(static_cast<int>(enough), options.rounds,
                        std::max(options.rounds, options.most_rounds));
  }
  for (const Contender& contender : *contenders) {
    tuned.times.push_back({contender.kernel, contender.median()});
    if (contender.kernel == tuned.before) tuned.seconds_before = contender.median();
  }
  std::stable_sort(tuned.times.begin(), tuned.times.end(),
                   [](const KernelTime& x, const KernelTime& y) { return x.seconds < y.seconds; });
  return tuned;
}

}  // namespace gemmd::kernels
