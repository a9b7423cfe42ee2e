#include "kernels/bench/cuda/grouped/grouped_case.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gemmd::kernels::bench {
namespace {

using Rows = std::vector<int64_t>;

constexpr int64_t kWholeTile = 128;  // rows to which others pad groups

Rows Even(int64_t groups, int64_t rows) { return Rows(static_cast<size_t>(groups), rows); }

Rows Between(int64_t groups, int64_t low, int64_t high, std::mt19937_64& random) {
  Rows rows;
  for (int64_t g = 0; g < groups; ++g) {
    rows.push_back(std::uniform_int_distribution<int64_t>(low, high)(random));
  }
  return rows;
}

// Every other group has none.
Rows HalfEmpty(Rows rows) {
  for (size_t g = 1; g < rows.size(); g += 2) rows[g] = 0;
  return rows;
}

// `tokens` choices among groups whose popularity falls as 1 / rank.
Rows Zipf(int64_t groups, int64_t tokens, std::mt19937_64& random) {
  std::vector<double> weights;
  for (int64_t g = 0; g < groups; ++g) weights.push_back(1.0 / static_cast<double>(g + 1));
  std::shuffle(weights.begin(), weights.end(), random);
  std::discrete_distribution<int64_t> draw(weights.begin(), weights.end());
  Rows rows = Even(groups, 0);
  for (int64_t i = 0; i < tokens; ++i) ++rows[draw(random)];
  return rows;
}

void AddMasked(std::vector<GroupedBenchCase>& cases, std::mt19937_64& random) {
  const auto add = [&](Rows rows, int64_t n, int64_t k, double us, int line) {
    cases.push_back({.suite = "masked",
                     .layout = GroupLayout::kCounts,
                     .rows = std::move(rows),
                     .m_max = 4096,
                     .n = n,
                     .k = k,
                     .wanted_us = us,
                     .line = line});
  };
  add(Between(8, 16, 64, random), 4096, 7168, 62, 2);
  add(Between(16, 16, 64, random), 4096, 7168, 119, 2);
  add(Between(8, 16, 64, random), 7168, 2048, 34, 2);
  add(Even(32, 8), 4096, 7168, 225, 2);
  add(Even(32, 16), 7168, 2048, 118, 2);
  for (const auto& [groups, rows] : {std::pair<int64_t, int64_t>{6, 1024}, {32, 192}, {32, 20}}) {
    add(Even(groups, rows), 6144, 7168, 0, 0);
    add(Even(groups, rows), 4096, 2048, 0, 0);
  }
}

void AddThin(std::vector<GroupedBenchCase>& cases, std::mt19937_64& random) {
  const auto add = [&](Rows rows, int64_t n, int64_t k, double us, int line) {
    cases.push_back(
        {.suite = "thin", .rows = std::move(rows), .n = n, .k = k, .wanted_us = us, .line = line});
  };
  add(Even(128, 4), 1536, 2048, 0, 3);
  add(Between(128, 1, 64, random), 1536, 2048, 0, 3);
  add(HalfEmpty(Even(128, 4)), 1536, 2048, 0, 3);
  add(Even(256, 8), 4096, 7168, 0, 3);
  add(HalfEmpty(Even(256, 8)), 4096, 7168, 0, 3);
  add(Even(64, 96), 4096, 7168, 503, 3);
  add(Zipf(128, 2048, random), 1536, 2048, 0, 0);
  add(Zipf(256, 4096, random), 4096, 7168, 0, 0);
}

void AddWide(std::vector<GroupedBenchCase>& cases, std::mt19937_64& random) {
  const auto add = [&](const char* suite, Rows rows, int64_t n, int64_t k, double tflops) {
    cases.push_back({.suite = suite,
                     .rows = std::move(rows),
                     .n = n,
                     .k = k,
                     .wanted_tflops = tflops,
                     .line = tflops > 0 ? 4 : 0});
  };
  add("prefill", Even(4, 8192), 4096, 7168, 1443);
  add("prefill", Even(8, 4096), 4096, 7168, 1443);
  add("prefill", Even(8, 4096), 6144, 7168, 1474);
  add("prefill", Even(8, 4096), 7168, 2048, 1367);
  add("ragged", Even(64, 192), 4096, 7168, 1240);
  add("ragged", Even(64, 300), 4096, 7168, 1270);
  add("ragged", Between(64, 96, 512, random), 4096, 7168, 0);
  cases.push_back(cases.back().Padded(kWholeTile));
  add("ragged", Zipf(64, 16384, random), 4096, 7168, 0);
}

// Of every kind of tile, as small as that goes, with --kernels all by every kernel: for a tool that
// looks at every access.
void AddSmall(std::vector<GroupedBenchCase>& cases) {
  const Rows few = {0, 1, 17, 64, 65, 100}, more = {0, 130, 1, 193, 200, 140},
             most = {0, 300, 257, 64, 520, 129};
  for (const Rows& rows : {few, more, most}) {
    cases.push_back({.suite = "small", .rows = rows, .n = 640, .k = 640});
  }
  cases.push_back({.suite = "small",
                   .layout = GroupLayout::kCounts,
                   .rows = few,
                   .m_max = 128,
                   .n = 200,
                   .k = 576});
}

// Groups of one size and of others, to see what a tile of each kind costs.
void AddSizes(std::vector<GroupedBenchCase>& cases, std::mt19937_64& random) {
  const auto add = [&](Rows rows, int64_t n, int64_t k) {
    cases.push_back({.suite = "sizes", .rows = std::move(rows), .n = n, .k = k});
  };
  for (const int64_t rows : {32, 64, 96, 128, 160, 192, 256, 272, 320, 384, 576}) {
    add(Even(64, rows), 4096, 7168);
  }
  for (const int64_t rows : {128, 192, 256}) add(Even(128, rows), 7168, 2048);
  add(Between(128, 224, 288, random), 4096, 7168);
  add(Between(128, 224, 288, random), 7168, 2048);
  add(Between(32, 500, 1500, random), 3072, 4096);
}

// What routers leave of 8 to 256 experts: drawn alike, by Zipf, all to one, and to few of many.
void AddExperts(std::vector<GroupedBenchCase>& cases, std::mt19937_64& random) {
  const auto add = [&](Rows rows) {
    cases.push_back({.suite = "experts", .rows = std::move(rows), .n = 1536, .k = 2048});
  };
  for (const int64_t experts : {8, 32, 64, 128, 256}) {
    for (const int64_t rows : {int64_t{4}, int64_t{32}, int64_t{256}}) {
      add(Between(experts, 0, 2 * rows, random));
      add(Zipf(experts, experts * rows, random));
    }
    Rows one_hot = Even(experts, 0), few = Even(experts, 0);
    one_hot[static_cast<size_t>(experts) / 2] = 4096;
    for (size_t g = 0; g < few.size(); g += 8) few[g] = 64;
    add(std::move(one_hot));
    add(std::move(few));
  }
}

// Of 16 bits, with what is wanted of BF16.
void AddDirect(std::vector<GroupedBenchCase>& cases, DType dtype, std::mt19937_64& random) {
  const auto add = [&](const char* suite, Rows rows, int64_t n, int64_t k, double tflops) {
    cases.push_back({.suite = suite,
                     .dtype = dtype,
                     .rows = std::move(rows),
                     .n = n,
                     .k = k,
                     .wanted_tflops = tflops,
                     .line = tflops > 0 ? 4 : 0});
  };
  const auto masked = [&](Rows rows, int64_t n, int64_t k) {
    add("masked", std::move(rows), n, k, 0);
    cases.back().layout = GroupLayout::kCounts;
    cases.back().m_max = 1024;
    cases.back().wanted_read = 1.06;
    cases.back().line = 4;
  };
  masked(Between(8, 16, 64, random), 4096, 7168);
  masked(Between(16, 16, 64, random), 4096, 7168);
  masked(Between(8, 16, 64, random), 7168, 2048);
  masked(Even(32, 8), 4096, 7168);
  add("thin", Even(128, 4), 1536, 2048, 0);
  add("thin", Even(64, 96), 4096, 7168, 0);
  add("thin", Zipf(128, 2048, random), 1536, 2048, 0);
  add("prefill", Even(8, 4096), 4096, 7168, 808);
  add("prefill", Even(8, 4096), 7168, 2048, 0);
  add("prefill", Even(256, 1024), 4096, 6144, 690);
  add("prefill", Zipf(256, 262144, random), 4096, 6144, 0);
  add("ragged", Even(64, 300), 4096, 7168, 650);
  add("ragged", Even(64, 192), 4096, 7168, 0);
  add("ragged", Between(64, 96, 512, random), 4096, 7168, 0);
}

}  // namespace

int64_t GroupedBenchCase::total_rows() const {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

int64_t GroupedBenchCase::active_groups() const {
  return std::count_if(rows.begin(), rows.end(), [](int64_t count) { return count > 0; });
}

std::vector<int64_t> GroupedBenchCase::starts() const {
  std::vector<int64_t> starts = {0};
  for (const int64_t count : rows) {
    starts.push_back(starts.back() + (count + alignment - 1) / alignment * alignment);
  }
  return starts;
}

double GroupedBenchCase::flops() const {
  const int64_t useful = useful_rows > 0 ? useful_rows : total_rows();
  return 2.0 * static_cast<double>(useful) * static_cast<double>(n) * static_cast<double>(k);
}

GroupedBenchCase GroupedBenchCase::Padded(int64_t step) const {
  GroupedBenchCase padded = *this;
  padded.useful_rows = total_rows();
  for (int64_t& count : padded.rows) count = (count + step - 1) / step * step;
  padded.wanted_us = padded.wanted_tflops = padded.wanted_read = 0;
  padded.line = 0;
  return padded;
}

std::string GroupedBenchCase::name() const {
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
  return absl::StrCat(std::string(Name(layout)), " ", rows.size(), "x(", *least,
                      *least == *most ? "" : absl::StrCat("..", *most), ")x", n, "x", k,
                      active_groups() == static_cast<int64_t>(rows.size())
                          ? ""
                          : absl::StrCat(", ", active_groups(), " with rows"),
                      useful_rows > 0 ? ", padded" : "", expects ? ", expected" : "");
}

std::vector<GroupedBenchCase> GroupedCases(const std::string& suite, DType dtype, bool blocks,
                                           uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<GroupedBenchCase> cases;
  if (dtype == DType::kE4M3 || dtype == DType::kI8) {
    AddMasked(cases, random);
    AddThin(cases, random);
    AddWide(cases, random);
    if (suite == "sizes") AddSizes(cases, random);
    if (suite == "experts") AddExperts(cases, random);
  } else {
    AddDirect(cases, dtype, random);
  }
  if (suite == "small") AddSmall(cases);
  for (GroupedBenchCase& one : cases) {
    one.dtype = dtype;
    one.blocks = blocks;
    const bool by_row = dtype == DType::kE4M3 && !blocks;
    if (dtype == DType::kI8 || by_row) one.wanted_us = one.wanted_tflops = one.line = 0;
  }
  if (suite == "all") return cases;
  std::erase_if(cases, [&](const GroupedBenchCase& one) { return one.suite != suite; });
  return cases;
}

absl::StatusOr<std::vector<GroupedBenchCase>> ParseCases(const std::string& text, DType dtype,
                                                         bool blocks, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<GroupedBenchCase> cases;
  for (const std::string& one : std::vector<std::string>(absl::StrSplit(text, ','))) {
    constexpr int64_t kMost = int64_t{1} << 24;
    const std::vector<std::string> parts = absl::StrSplit(one, 'x');
    int64_t groups = 0, low = 0, high = 0, n = 0, k = 0;
    const auto read = [](const std::string& part, int64_t least, int64_t& number) {
      return absl::SimpleAtoi(part, &number) && number >= least && number <= kMost;
    };
    const auto read_rows = [&](const std::string& part) {
      const std::vector<std::string> ends = absl::StrSplit(part, absl::MaxSplits("..", 1));
      return read(ends.front(), 0, low) && read(ends.back(), low, high);
    };
    if (parts.size() != 4 || !read(parts[0], 1, groups) || !read_rows(parts[1]) ||
        !read(parts[2], 1, n) || !read(parts[3], 1, k)) {
      return absl::InvalidArgumentError(
          absl::StrCat(one, ": not a case; use as 64x300x4096x7168 or 64x96..512x4096x7168"));
    }
    cases.push_back({.suite = "case",
                     .dtype = dtype,
                     .rows = Between(groups, low, high, random),
                     .n = n,
                     .k = k,
                     .blocks = blocks});
  }
  return cases;
}

}  // namespace gemmd::kernels::bench
