#include "kernels/bench/kernel_spans.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/bench/statistics.h"

namespace gemmd::kernels::bench {

std::string ShortName(std::string_view mangled) {
  const std::string text(mangled);
  int code = 0;
  const std::unique_ptr<char, decltype(&std::free)> whole(
      abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &code), &std::free);
  std::string name = code == 0 ? whole.get() : text;
  // "void a::(anonymous namespace)::F<(int)1>(Args)"
  const std::string hidden = "(anonymous namespace)::";
  for (size_t at = name.find(hidden); at != std::string::npos; at = name.find(hidden)) {
    name.erase(at, hidden.size());
  }
  name.resize(std::min({name.find('<'), name.find('('), name.size()}));
  const size_t last = name.find_last_of(": ");
  return last == std::string::npos ? name : name.substr(last + 1);
}

RunParts PartsOfRuns(std::vector<KernelSpan> spans, std::string_view divider) {
  std::stable_sort(spans.begin(), spans.end(), [](const KernelSpan& x, const KernelSpan& y) {
    return x.start_ns < y.start_ns;
  });
  std::vector<std::vector<KernelSpan>> runs;
  for (KernelSpan& span : spans) {
    if (span.name.find(divider) != std::string::npos) {
      runs.emplace_back();
    } else if (!runs.empty()) {
      runs.back().push_back(std::move(span));
    }
  }
  RunParts parts;
  if (runs.empty() || runs.back().empty()) return parts;
  const size_t count = runs.back().size();
  std::erase_if(runs, [count](const auto& run) { return run.size() != count; });
  std::vector<double> whole;
  std::vector<std::vector<double>> starts(count), ends(count), added(count);
  for (const std::vector<KernelSpan>& run : runs) {
    const uint64_t first = run.front().start_ns;
    uint64_t latest = first;
    for (size_t i = 0; i < count; ++i) {
      starts[i].push_back(static_cast<double>(run[i].start_ns - first) * 1e-3);
      ends[i].push_back(static_cast<double>(run[i].end_ns - first) * 1e-3);
      const uint64_t end = std::max(latest, run[i].end_ns);
      added[i].push_back(static_cast<double>(end - latest) * 1e-3);
      latest = end;
    }
    whole.push_back(static_cast<double>(latest - first) * 1e-3);
  }
  parts.us = Median(whole);
  for (size_t i = 0; i < count; ++i) {
    parts.kernels.push_back(
        {ShortName(runs.back()[i].name), Median(starts[i]), Median(ends[i]), Median(added[i])});
  }
  return parts;
}

}  // namespace gemmd::kernels::bench
