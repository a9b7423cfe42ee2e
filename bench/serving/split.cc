// A weight in halves on two devices against the whole of it on one.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/percentiles.h"
#include "bench/serving/suite.h"
#include "client/cpp/split_linear.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {
namespace {

using client::DType;
using client::Split;
using client::SplitBatch;
using client::SplitLinear;

// Copies of a weight that a program goes through: halves of one would stay in a GPU's L2.
constexpr int kCopies = 3;
constexpr double kProgramSeconds = 3e-3;  // about: so that a call's own cost does not count

std::string RandomBf16(int64_t elements, int seed) {
  std::mt19937 random(seed);
  std::string bytes(static_cast<size_t>(2 * elements), '\0');
  // Signs, magnitudes of 2^-7 to 2, any fractions.
  for (int64_t i = 0; i < elements; i += 2) {
    const uint32_t word = (random() & 0x83ff83ffu) | 0x3c003c00u;
    std::memcpy(bytes.data() + 2 * i, &word, std::min<int64_t>(4, 2 * (elements - i)));
  }
  return bytes;
}

float FromBf16(const char* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof(half));
  const uint32_t word = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// Of any element, over the largest of all.
double LargestDifference(const std::string& x, const std::string& y) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i + 1 < x.size(); i += 2) {
    const double a = FromBf16(x.data() + i), b = FromBf16(y.data() + i);
    if (!(std::abs(a) < INFINITY) || !(std::abs(b) < INFINITY)) return INFINITY;
    largest = std::max(largest, std::abs(a));
    difference = std::max(difference, std::abs(a - b));
  }
  return largest > 0 ? difference / largest : INFINITY;
}

// A layer several times over, and a batch for each.
struct Layers {
  std::vector<std::unique_ptr<SplitLinear>> layers;
  std::vector<SplitBatch> batches;

  absl::Status Make(const Serving& serving, Split split, const std::vector<std::string>& devices,
                    const MatmulSize& size, const std::string& weight) {
    for (int i = 0; i < kCopies; ++i) {
      auto layer = SplitLinear::Create(serving.session,
                                       {.split = split,
                                        .devices = devices,
                                        .n = size.n,
                                        .k = size.k,
                                        .dtype = DType::kBF16,
                                        .x_dtype = DType::kBF16,
                                        .y_dtype = DType::kBF16},
                                       weight);
      if (!layer.ok()) return layer.status();
      layers.push_back(*std::move(layer));
    }
    return absl::OkStatus();
  }
  absl::Status Prepare(int64_t m, const std::string& x) {
    batches.clear();
    for (const auto& layer : layers) {
      auto batch = layer->Prepare(m);
      if (!batch.ok()) return batch.status();
      if (absl::Status loaded = batch->Load(x); !loaded.ok()) return loaded;
      batches.push_back(*std::move(batch));
    }
    return absl::OkStatus();
  }
  client::OpList Products(int count, bool quantize) const {
    client::OpList ops;
    for (int i = 0; i < count; ++i) {
      const SplitBatch& batch = batches[i % batches.size()];
      if (quantize) batch.AddQuantize(ops);
      batch.AddProduct(ops);
    }
    return ops;
  }
};

struct Times {
  double product = 0, device = 0, layer = 0;  // seconds of one, by the clock; in device time
  double spread = 0;
  std::string y;
};

absl::StatusOr<std::vector<double>> RunTimes(const Serving& serving, const client::OpList& ops,
                                             int count, std::vector<double>* device) {
  absl::StatusOr<client::Plan> plan = serving.session.CreatePlan(ops);
  if (!plan.ok()) return plan.status();
  std::vector<double> seconds;
  const int rounds = 3 * serving.sizes.rounds;
  for (int round = -3; round < rounds; ++round) {
    const absl::Time start = absl::Now();
    auto result = plan->Run({}, {.report = client::ReportLevel::kSummary});
    if (!result.ok()) return result.status();
    if (round < 0) continue;
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start) / count);
    if (device != nullptr) device->push_back(result->report().device_seconds() / count);
  }
  return seconds;
}

absl::StatusOr<Times> TimesOf(const Serving& serving, const Layers& layers, int count) {
  // Quantises every copy's x once, which the products then read.
  auto first = serving.session.Execute(layers.Products(kCopies, /*quantize=*/true));
  if (!first.ok()) return first.status();
  Times times;
  std::vector<double> device;
  auto products = RunTimes(serving, layers.Products(count, false), count, &device);
  if (!products.ok()) return products.status();
  auto whole = RunTimes(serving, layers.Products(count, true), count, nullptr);
  if (!whole.ok()) return whole.status();
  auto y = layers.batches.front().Fetch();
  if (!y.ok()) return y.status();
  times.product = Median(*products);
  times.spread = Spread(*products);
  times.device = Median(device);
  times.layer = Median(*whole);
  times.y = *std::move(y);
  return times;
}

cli::Json Microseconds(const Times& times) {
  return {{"product_us", times.product * 1e6},
          {"product_device_us", times.device * 1e6},
          {"with_quantize_us", times.layer * 1e6},
          {"spread", times.spread}};
}

struct Kind {
  Split split;
  const char* name;
  const char* what;
  double wanted;
};

absl::Status Measure(const Serving& serving, const MatmulSize& shape, absl::Span<const Kind> kinds,
                     std::vector<Figure>& figures) {
  const std::string weight = RandomBf16(shape.n * shape.k, 1);
  Layers one;
  absl::Status made = one.Make(serving, Split::kColumns, {serving.device}, shape, weight);
  std::vector<Layers> two(kinds.size());
  for (size_t i = 0; i < kinds.size() && made.ok(); ++i) {
    made =
        two[i].Make(serving, kinds[i].split, {serving.device, serving.other_device}, shape, weight);
  }
  if (!made.ok()) return made;
  for (const int64_t m : serving.sizes.split_rows) {
    const std::string x = RandomBf16(m * shape.k, 2);
    if (absl::Status ready = one.Prepare(m, x); !ready.ok()) return ready;
    // At about 1.3 PFLOP/s of FP8.
    const double estimate = 2.0 * m * shape.n * shape.k / 1.3e15;
    const int count = std::clamp(static_cast<int>(kProgramSeconds / estimate), 6, 48);
    auto alone = TimesOf(serving, one, count);
    if (!alone.ok()) return alone.status();
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (absl::Status ready = two[i].Prepare(m, x); !ready.ok()) return ready;
      auto both = TimesOf(serving, two[i], count);
      if (!both.ok()) return both.status();
      const double difference = LargestDifference(alone->y, both->y);
      if (!(difference < 0.02)) {
        return absl::InternalError(absl::StrCat(kinds[i].name, " of m=", m, ", n=", shape.n,
                                                ", k=", shape.k, " differs from one device's by ",
                                                difference, " of its largest element"));
      }
      Figure figure = {
          .key = absl::StrCat("split_", kinds[i].name, "_", shape.n, "x", shape.k, "_m", m),
          .what = absl::StrCat(kinds[i].what, ", n x k ", shape.n, "x", shape.k, ", m=", m,
                               ": two devices over one"),
          .wanted = kinds[i].wanted,
          .seen = alone->product / both->product};
      figure.detail = {{"one", Microseconds(*alone)},
                       {"two", Microseconds(*both)},
                       {"with_quantize", alone->layer / both->layer},
                       {"products_a_program", count},
                       {"largest_difference", difference}};
      figures.push_back(std::move(figure));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Figure> MeasureSplit(const Serving& serving) {
  constexpr Kind kKinds[] = {{Split::kColumns, "columns", "a weight split by columns of y", 1.85},
                             {Split::kRows, "rows", "a weight split by k", 1.7}};
  std::vector<Figure> figures;
  for (const MatmulSize& shape : serving.sizes.split) {
    Figure missing = {.key = absl::StrCat("split_", shape.n, "x", shape.k),
                      .what = "a weight in halves on two devices over one"};
    if (serving.other_device.empty()) {
      figures.push_back(Missing(missing, NoSecondDevice(serving)));
    } else if (absl::Status status = Measure(serving, shape, kKinds, figures); !status.ok()) {
      figures.push_back(Missing(missing, status));
    }
  }
  return figures;
}

}  // namespace gemmd::bench
