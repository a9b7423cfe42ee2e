// split_bench: a linear layer whose weight lies in parts on two or more devices of a daemon,
// against the whole of it on one. Every product is checked against the one device's. Writes JSON
// lines, a figure each, and a table to stderr; exit status 1 when something fails or differs, not
// when it is slow.
//
//   split_bench unix:/run/gemmd.sock cuda:0 cuda:1 [cuda:2 ..] [quick | NxK .. m=M ..]
//
// Without a weight or rows those of docs/benchmarks/h200x2.md. Each device keeps its columns
// of the result; nothing gathers them, nor is that timed.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/split_linear.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {
namespace {

using client::DType;
using client::Session;
using client::Split;
using client::SplitBatch;
using client::SplitLinear;

// Copies of a weight that a program goes through: halves of one would stay in a GPU's L2.
constexpr int kCopies = 3;
constexpr double kProgramSeconds = 20e-3;  // about: a call's own cost, some 0.3 ms, hardly counts
constexpr int kMostProducts = 480;
constexpr int kMostParts = 1000;  // of a program, nearly
constexpr int kRounds = 7;
constexpr int kWarmUps = 3;
// Of the largest element of y, that FP8 products summed in another order and BF16 may differ by.
constexpr double kMostDifference = 0.02;

struct Shape {
  int64_t n, k;
};

struct Kind {
  Split split;
  const char* name;
};

// What `devices` are to gain; 0 where nothing is said.
double Wanted(Split split, size_t devices) {
  if (devices == 2) return split == Split::kColumns ? 1.85 : 1.7;
  return devices == 4 ? 3.4 : devices == 8 ? 6.0 : 0;
}

// A product by rows is up to D parts on each of D devices.
int MostProducts(Split split, size_t devices) {
  if (split == Split::kColumns) return kMostProducts;
  return kMostParts / static_cast<int>(devices * devices);
}

struct Options {
  std::vector<std::string> devices;
  std::vector<Shape> shapes;
  std::vector<int64_t> rows;
};

// Without devices when a word is none of the usage's.
Options OptionsOf(const std::vector<std::string>& words) {
  Options options;
  for (const std::string& word : words) {
    long n = 0, k = 0, m = 0;
    if (word.find(':') != std::string::npos) {
      options.devices.push_back(word);
    } else if (word == "quick") {
      options.shapes = {{256, 384}};
      options.rows = {16};
    } else if (std::sscanf(word.c_str(), "%ldx%ld", &n, &k) == 2 && n > 0 && k > 0) {
      options.shapes.push_back({n, k});
    } else if (std::sscanf(word.c_str(), "m=%ld", &m) == 1 && m > 0) {
      options.rows.push_back(m);
    } else {
      return {};
    }
  }
  if (options.shapes.empty()) options.shapes = {{24576, 1536}, {7168, 16384}};
  if (options.rows.empty()) options.rows = {512, 1024, 4096};
  return options;
}

std::string RandomBf16(int64_t elements, int seed) {
  std::mt19937 random(seed);
  std::string bytes(static_cast<size_t>(2 * elements), '\0');
  // Signs, magnitudes of 2^-7 to 2, any fractions.
  for (int64_t i = 0; i < elements; i += 2) {
    const uint32_t word = (static_cast<uint32_t>(random()) & 0x83ff83ffu) | 0x3c003c00u;
    std::memcpy(bytes.data() + 2 * i, &word, std::min<size_t>(4, bytes.size() - 2 * i));
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
  if (x.size() != y.size()) return INFINITY;
  double largest = 0, difference = 0;
  for (size_t i = 0; i + 1 < x.size(); i += 2) {
    const double a = FromBf16(x.data() + i), b = FromBf16(y.data() + i);
    if (!std::isfinite(a) || !std::isfinite(b)) return INFINITY;
    largest = std::max(largest, std::abs(a));
    difference = std::max(difference, std::abs(a - b));
  }
  return largest > 0 ? difference / largest : INFINITY;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A layer several times over, and a batch for each.
struct Layers {
  std::vector<std::unique_ptr<SplitLinear>> layers;
  std::vector<SplitBatch> batches;

  absl::Status Make(Session& session, Split split, const std::vector<std::string>& devices,
                    const Shape& shape, const std::string& weight) {
    for (int i = 0; i < kCopies; ++i) {
      auto layer = SplitLinear::Create(session,
                                       {.split = split,
                                        .devices = devices,
                                        .n = shape.n,
                                        .k = shape.k,
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

// Seconds of one product: by the clock, by the report, with the quantisation of x in front, and
// alone in its program.
struct Times {
  double product = 0, device = 0, layer = 0, call = 0;
  std::string y;
};

absl::StatusOr<double> TimeOf(Session& session, const client::OpList& ops, int count,
                              double* device = nullptr) {
  absl::StatusOr<client::Plan> plan = session.CreatePlan(ops);
  if (!plan.ok()) return plan.status();
  std::vector<double> seconds, of_device;
  for (int round = -kWarmUps; round < kRounds; ++round) {
    const absl::Time start = absl::Now();
    auto result = plan->Run({}, {.report = client::ReportLevel::kSummary});
    if (!result.ok()) return result.status();
    if (round < 0) continue;
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start) / count);
    of_device.push_back(result->report().device_seconds() / count);
  }
  if (device != nullptr) *device = Median(of_device);
  return Median(seconds);
}

absl::StatusOr<Times> TimesOf(Session& session, const Layers& layers, int count) {
  // Quantises every copy's x once, which the products then read.
  auto first = session.Execute(layers.Products(kCopies, /*quantize=*/true));
  if (!first.ok()) return first.status();
  Times times;
  auto product = TimeOf(session, layers.Products(count, false), count, &times.device);
  if (!product.ok()) return product.status();
  auto layer = TimeOf(session, layers.Products(count, true), count);
  if (!layer.ok()) return layer.status();
  auto call = TimeOf(session, layers.Products(1, true), 1);
  if (!call.ok()) return call.status();
  auto y = layers.batches.front().Fetch();
  if (!y.ok()) return y.status();
  return Times{*product, times.device, *layer, *call, *std::move(y)};
}

std::string Json(const Times& times) {
  return absl::StrFormat(
      R"({"product_us": %.2f, "product_report_us": %.2f, "with_quantize_us": %.2f, "one_call_us": %.2f})",
      times.product * 1e6, times.device * 1e6, times.layer * 1e6, times.call * 1e6);
}

void Tell(const Kind& kind, size_t devices, const Shape& shape, int64_t m, int count,
          const Times& one, const Times& two, double difference) {
  const double seen = one.product / two.product;
  const double wanted = Wanted(kind.split, devices);
  std::printf(
      R"({"line": "split", "name": "%s_%dx%d_m%d", "value": %.4f, "unit": "x", "wanted": %.2f, "ok": %s, )"
      R"("detail": {"devices": %d, "one": %s, "split": %s, "with_quantize": %.4f, "one_call": %.4f, "products_a_program": %d, )"
      R"("largest_difference": %.5f}})"
      "\n",
      kind.name, static_cast<int>(shape.n), static_cast<int>(shape.k), static_cast<int>(m), seen,
      wanted, seen >= wanted ? "true" : "false", static_cast<int>(devices), Json(one).c_str(),
      Json(two).c_str(), one.layer / two.layer, one.call / two.call, count, difference);
  std::fflush(stdout);
  std::fprintf(stderr, "%-8s %6dx%-6d m=%-5d %7.2f us -> %7.2f us  %.3f x\n", kind.name,
               static_cast<int>(shape.n), static_cast<int>(shape.k), static_cast<int>(m),
               one.product * 1e6, two.product * 1e6, seen);
}

absl::Status Measure(Session& session, const Options& options, const Shape& shape) {
  constexpr Kind kKinds[] = {{Split::kColumns, "columns"}, {Split::kRows, "rows"}};
  const std::string weight = RandomBf16(shape.n * shape.k, 1);
  Layers one;
  absl::Status made = one.Make(session, Split::kColumns, {options.devices.front()}, shape, weight);
  std::vector<Layers> two(std::size(kKinds));
  for (size_t i = 0; i < two.size() && made.ok(); ++i) {
    made = two[i].Make(session, kKinds[i].split, options.devices, shape, weight);
  }
  if (!made.ok()) return made;
  for (const int64_t m : options.rows) {
    const std::string x = RandomBf16(m * shape.k, 2);
    if (absl::Status ready = one.Prepare(m, x); !ready.ok()) return ready;
    const double estimate = 2.0 * static_cast<double>(m) * static_cast<double>(shape.n) *
                            static_cast<double>(shape.k) / 1.3e15;
    const int count =
        static_cast<int>(std::clamp(kProgramSeconds / estimate, 6.0, 1.0 * kMostProducts));
    auto alone = TimesOf(session, one, count);
    if (!alone.ok()) return alone.status();
    for (size_t i = 0; i < two.size(); ++i) {
      if (absl::Status ready = two[i].Prepare(m, x); !ready.ok()) return ready;
      const int products = std::min(count, MostProducts(kKinds[i].split, options.devices.size()));
      auto both = TimesOf(session, two[i], products);
      if (!both.ok()) return both.status();
      const double difference = LargestDifference(alone->y, both->y);
      if (!(difference < kMostDifference)) {
        return absl::InternalError(absl::StrCat(kKinds[i].name, " of m=", m, ", n=", shape.n,
                                                ", k=", shape.k, " differs from one device's by ",
                                                difference, " of its largest element"));
      }
      Tell(kKinds[i], options.devices.size(), shape, m, products, *alone, *both, difference);
      two[i].batches.clear();
    }
  }
  return absl::OkStatus();
}

absl::Status Main(const std::string& server, const Options& options) {
  absl::StatusOr<client::Client> client = client::Client::Connect(server);
  if (!client.ok()) return client.status();
  absl::StatusOr<Session> session =
      client->OpenSession({.label = "split_bench", .device = options.devices.front()});
  if (!session.ok()) return session.status();
  for (const Shape& shape : options.shapes) {
    absl::Status measured = Measure(*session, options, shape);
    if (!measured.ok()) return measured;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace gemmd::bench

int main(int argc, char** argv) {
  gemmd::bench::Options options;
  if (argc >= 4) options = gemmd::bench::OptionsOf({argv + 2, argv + argc});
  if (options.devices.size() < 2) {
    std::fprintf(stderr, "usage: split_bench SERVER DEVICE DEVICE.. [quick] [NxK..] [m=M..]\n");
    return 2;
  }
  const absl::Status status = gemmd::bench::Main(argv[1], options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "split_bench: %s\n", status.ToString().c_str());
  return 1;
}
