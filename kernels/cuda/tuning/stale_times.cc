#include "kernels/cuda/tuning/stale_times.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda/sm90/code_hash.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

// All splits of a config share its code.
std::string ConfigName(const GemmVariant& variant) {
  return Name(GemmVariant{variant.family, variant.config});
}

double Fastest(const std::vector<TunedKernel>& kernels) {
  double seconds = std::numeric_limits<double>::infinity();
  for (const TunedKernel& kernel : kernels) seconds = std::min(seconds, kernel.seconds);
  return seconds;
}

}  // namespace

void AddCode(const std::string& kernel, KernelCodes& codes) {
  const std::optional<GemmVariant> variant = FindVariant(kernel);
  if (variant.has_value()) codes[ConfigName(*variant)] = std::string(CodeOf(*variant));
}

bool StaleTimes::IsStale(const std::string& kernel) {
  const std::optional<GemmVariant> variant = FindVariant(kernel);
  if (!variant.has_value()) return false;
  std::string config = ConfigName(*variant);
  const auto measured = measured_.find(config);
  if (measured != measured_.end() && measured->second == CodeOf(*variant)) return false;
  changed_.insert(std::move(config));
  return true;
}

void StaleTimes::RemoveFrom(std::vector<TunedKernel>& kernels) {
  const double before = Fastest(kernels);
  times_ += static_cast<int>(kernels.size());
  std::erase_if(kernels, [&](const TunedKernel& kernel) { return IsStale(kernel.kernel); });
  if (Fastest(kernels) > kNear * before) kernels.clear();
  kept_ += static_cast<int>(kernels.size());
  shapes_ += kernels.empty();
}

std::string StaleTimes::Describe() const {
  if (changed_.empty()) return "";
  constexpr size_t kNamed = 4;
  const size_t named = std::min(kNamed, changed_.size());
  std::string names = absl::StrJoin(changed_.begin(), std::next(changed_.begin(), named), ", ");
  if (named < changed_.size()) absl::StrAppend(&names, " and ", changed_.size() - named, " more");
  return absl::StrCat("tuning table was measured with other machine code of ", names,
                      " than this build has (nvcc ", Text(KernelCompiler()), "): ", times_ - kept_,
                      " of its ", times_, " times and ", shapes_,
                      " of its shapes are left out; run `gemm_bench --tune` again");
}

}  // namespace gemmd::kernels::cuda
