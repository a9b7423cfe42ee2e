#include "kernels/tuner.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"

namespace gemmd::kernels {
namespace {

// Powers of two and one and a half of them: an entry serves down to half its rows.
constexpr std::array<int64_t, 25> kBuckets = {
    1,   2,   4,   8,    16,   24,   32,   48,   64,   96,   128,   192,           256,
    384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, kMostTunedRows};

}  // namespace

std::string ToString(const TuneShape& shape) {
  return absl::StrCat("m=", shape.m, " n=", shape.n, " k=", shape.k, " ", Text(Name(shape.out)));
}

int64_t RowBucket(int64_t rows) {
  const auto found = std::lower_bound(kBuckets.begin(), kBuckets.end(), rows);
  return rows < 1 || found == kBuckets.end() ? 0 : *found;
}

absl::Span<const int64_t> UsualRowBuckets() {
  constexpr int64_t kMostUsual = 4096;
  const auto end = std::upper_bound(kBuckets.begin(), kBuckets.end(), kMostUsual);
  return absl::MakeConstSpan(kBuckets.data(), end - kBuckets.begin());
}

}  // namespace gemmd::kernels
