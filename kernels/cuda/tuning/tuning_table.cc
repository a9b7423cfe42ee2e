#include "kernels/cuda/tuning/tuning_table.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/sm90/code_hash.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/cuda/tuning/stale_times.h"
#include "kernels/text.h"
#include "nlohmann/json.hpp"

namespace gemmd::kernels::cuda {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;
using nlohmann::json;

constexpr std::string_view kFormat = "gemmd-tuning-2";
// Bounds on what a file can make the daemon hold; a table of thousands of shapes is far below them.
constexpr size_t kMaxFileBytes = size_t{16} << 20;
constexpr size_t kMaxNameLength = 128;
constexpr size_t kMaxKernelsPerEntry = 1024;
constexpr double kMaxMicroseconds = 1e9;

// Deeper values than a table has are dropped as they are read: a file of brackets costs nothing.
bool ShallowOnly(int depth, json::parse_event_t, json&) { return depth <= 6; }

absl::StatusOr<std::string> ReadTable(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(StrCat("tuning table ", path, " cannot be opened"));
  std::string text;
  char chunk[1 << 16];
  while (file.read(chunk, sizeof(chunk)) || file.gcount() > 0) {
    text.append(chunk, file.gcount());
    if (text.size() > kMaxFileBytes) {
      return InvalidArgumentError(
          StrCat("tuning table ", path, " is larger than ", kMaxFileBytes, " bytes"));
    }
  }
  if (file.bad()) return absl::NotFoundError(StrCat("tuning table ", path, " cannot be read"));
  return text;
}

// A string out of the file, fit for a message.
std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 64;
  return StrCat("\"", absl::CHexEscape(Text(text.substr(0, kShown))),
                text.size() > kShown ? "...\"" : "\"");
}

const json* Member(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

absl::StatusOr<std::string> StringMember(const json& object, const char* name,
                                         const std::string& place) {
  const json* member = Member(object, name);
  if (member == nullptr || !member->is_string()) {
    return InvalidArgumentError(StrCat(place, ".", name, " is not a string"));
  }
  return *member->get_ptr<const std::string*>();
}

absl::StatusOr<int64_t> ExtentMember(const json& object, const char* name,
                                     const std::string& place) {
  const json* member = Member(object, name);
  // Not negative and not a fraction; the limit also keeps uint64 from turning negative.
  if (member == nullptr || !member->is_number_unsigned() || *member == 0 ||
      member->get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
    return InvalidArgumentError(
        StrCat(place, ".", name, " is not a whole number from 1 to 2147483647"));
  }
  return member->get<int64_t>();
}

// The type that a member names, of those in `types`.
absl::StatusOr<DType> TypeMember(const json& value, const char* name, const std::string& place,
                                 absl::Span<const DType> types) {
  const absl::StatusOr<std::string> text = StringMember(value, name, place);
  if (!text.ok()) return text.status();
  std::string known;
  for (DType dtype : types) {
    if (Name(dtype) == *text) return dtype;
    absl::StrAppend(&known, known.empty() ? "" : ", ", Text(Name(dtype)));
  }
  return InvalidArgumentError(
      StrCat(place, ".", name, " is ", Quoted(*text), "; use one of ", known));
}
constexpr DType kResults[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr DType kOperands[] = {DType::kE4M3, DType::kBF16, DType::kF16, DType::kI8};

absl::StatusOr<TunedKernel> ReadKernel(const json& value, const std::string& place) {
  TunedKernel kernel;
  absl::StatusOr<std::string> name = StringMember(value, "name", place);
  if (!name.ok()) return name.status();
  if (name->empty() || name->size() > kMaxNameLength) {
    return InvalidArgumentError(StrCat(place, ".name has ", name->size(),
                                       " characters; kernels have 1 to ", kMaxNameLength));
  }
  kernel.kernel = *std::move(name);
  const json* us = Member(value, "us");
  const double microseconds = us != nullptr && us->is_number() ? us->get<double>() : -1;
  if (!(microseconds > 0 && microseconds <= kMaxMicroseconds)) {
    return InvalidArgumentError(
        StrCat(place, ".us is not a number above 0, at most ", kMaxMicroseconds));
  }
  kernel.seconds = microseconds * 1e-6;
  return kernel;
}

absl::StatusOr<TuningKey> ReadKey(const json& value, const std::string& place) {
  TuningKey key;
  for (auto [name, extent] : {std::pair{"m", &key.m}, {"n", &key.n}, {"k", &key.k}}) {
    absl::StatusOr<int64_t> number = ExtentMember(value, name, place);
    if (!number.ok()) return number.status();
    *extent = *number;
  }
  const absl::StatusOr<DType> out = TypeMember(value, "out", place, kResults);
  if (!out.ok()) return out.status();
  key.out = *out;
  if (Member(value, "in") == nullptr) return key;  // FP8, as all once were
  const absl::StatusOr<DType> in = TypeMember(value, "in", place, kOperands);
  if (!in.ok()) return in.status();
  key.in = *in;
  return key;
}

absl::StatusOr<std::vector<TunedKernel>> ReadKernels(const json& value, const std::string& place) {
  const json* list = Member(value, "kernels");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxKernelsPerEntry) {
    return InvalidArgumentError(
        StrCat(place, ".kernels is not a list of 1 to ", kMaxKernelsPerEntry, " kernels"));
  }
  std::vector<TunedKernel> kernels;
  kernels.reserve(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    absl::StatusOr<TunedKernel> kernel = ReadKernel((*list)[i], StrCat(place, ".kernels[", i, "]"));
    if (!kernel.ok()) return kernel.status();
    kernels.push_back(*std::move(kernel));
  }
  return kernels;
}

// The file's head: that it is a table, and that it is one of this machine and this build.
absl::Status CheckHead(const json& file, std::string_view gpu_model) {
  const absl::StatusOr<std::string> format = StringMember(file, "format", "tuning table");
  if (!format.ok()) return format.status();
  if (*format != kFormat) {
    return InvalidArgumentError(StrCat("tuning table.format is ", Quoted(*format),
                                       "; this build reads \"", Text(kFormat), "\""));
  }
  const absl::StatusOr<std::string> gpu = StringMember(file, "gpu", "tuning table");
  if (!gpu.ok()) return gpu.status();
  if (*gpu != gpu_model) {
    return absl::FailedPreconditionError(StrCat("tuning table was measured on ", Quoted(*gpu),
                                                ", this device is ", Quoted(gpu_model),
                                                "; run `gemm_bench --tune` on it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<KernelCodes> ReadCodes(const json& file) {
  const json* object = Member(file, "kernels");
  if (object == nullptr || !object->is_object() || object->size() > kMaxKernelsPerEntry) {
    return InvalidArgumentError(StrCat("tuning table.kernels is not an object of at most ",
                                       kMaxKernelsPerEntry,
                                       " kernels' code; run `gemm_bench --tune`"));
  }
  KernelCodes codes;
  for (const auto& [name, code] : object->items()) {
    if (!code.is_string() || name.size() > kMaxNameLength) {
      return InvalidArgumentError(
          StrCat("tuning table.kernels[", Quoted(name), "] is not a kernel's code"));
    }
    codes[name] = code.get<std::string>();
  }
  return codes;
}

std::string DumpString(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
}

// To a nanosecond: more digits are noise and make two runs' files harder to compare.
std::string JsonMicroseconds(double seconds) {
  return json(std::round(seconds * 1e9) / 1e3).dump();
}

}  // namespace

absl::StatusOr<TuningTable> TuningTable::Parse(std::string_view text, std::string_view gpu_model) {
  const json file = json::parse(text, ShallowOnly, /*allow_exceptions=*/false);
  if (file.is_discarded()) {
    return InvalidArgumentError(StrCat("tuning table of ", text.size(), " bytes is not JSON"));
  }
  if (absl::Status status = CheckHead(file, gpu_model); !status.ok()) return status;
  const absl::StatusOr<KernelCodes> codes = ReadCodes(file);
  if (!codes.ok()) return codes.status();
  const json* entries = Member(file, "entries");
  if (entries == nullptr || !entries->is_array()) {
    return InvalidArgumentError("tuning table.entries is not a list");
  }
  TuningTable table;
  StaleTimes stale(*codes);
  absl::btree_set<TuningKey> seen;
  for (size_t i = 0; i < entries->size(); ++i) {
    const std::string place = StrCat("tuning table.entries[", i, "]");
    const absl::StatusOr<TuningKey> key = ReadKey((*entries)[i], place);
    if (!key.ok()) return key.status();
    absl::StatusOr<std::vector<TunedKernel>> kernels = ReadKernels((*entries)[i], place);
    if (!kernels.ok()) return kernels.status();
    if (!seen.insert(*key).second) {
      return InvalidArgumentError(StrCat(place, " repeats the shape m=", key->m, " n=", key->n,
                                         " k=", key->k, " of an earlier entry; remove one"));
    }
    stale.RemoveFrom(*kernels);
    table.Set(*key, *std::move(kernels));
  }
  if (stale.none_left()) return absl::FailedPreconditionError(stale.Describe());
  table.stale_ = stale.Describe();
  return table;
}

absl::StatusOr<TuningTable> TuningTable::Load(const std::string& path, std::string_view gpu_model) {
  const absl::StatusOr<std::string> text = ReadTable(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<TuningTable> table = Parse(*text, gpu_model);
  if (table.ok()) return table;
  return absl::Status(table.status().code(), StrCat(path, ": ", table.status().message()));
}

absl::StatusOr<std::string> TuningTable::ModelOf(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTable(path);
  if (!text.ok()) return text.status();
  const json file = json::parse(*text, ShallowOnly, /*allow_exceptions=*/false);
  if (file.is_discarded()) {
    return InvalidArgumentError(
        StrCat(path, ": tuning table of ", text->size(), " bytes is not JSON"));
  }
  return StringMember(file, "gpu", StrCat(path, ": tuning table"));
}

std::string TuningTable::Serialize(std::string_view gpu_model, std::string_view driver,
                                   std::string_view date) const {
  std::string text =
      StrCat("{\n\"format\": ", DumpString(kFormat), ",\n\"gpu\": ", DumpString(gpu_model),
             ",\n\"driver\": ", DumpString(driver), ",\n\"date\": ", DumpString(date),
             ",\n\"compiler\": ", DumpString(KernelCompiler()), ",\n\"kernels\": {");
  KernelCodes codes;  // this build's, which are therefore what was measured
  for (const auto& [key, kernels] : entries_) {
    for (const TunedKernel& kernel : kernels) AddCode(kernel.kernel, codes);
  }
  const char* separator = "\n";
  for (const auto& [name, code] : codes) {
    absl::StrAppend(&text, separator, DumpString(name), ": ", DumpString(code));
    separator = ",\n";
  }
  text += "\n},\n\"entries\": [";
  separator = "\n";
  for (const auto& [key, kernels] : entries_) {
    absl::StrAppend(&text, separator, "{\"m\": ", key.m, ", \"n\": ", key.n, ", \"k\": ", key.k,
                    ", \"out\": ", DumpString(Name(key.out)));
    if (key.in != DType::kE4M3) absl::StrAppend(&text, ", \"in\": ", DumpString(Name(key.in)));
    text += ", \"kernels\": [";
    for (size_t i = 0; i < kernels.size(); ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", "{\"name\": ", DumpString(kernels[i].kernel),
                      ", \"us\": ", JsonMicroseconds(kernels[i].seconds), "}");
    }
    text += "]}";
    separator = ",\n";
  }
  text += "\n]\n}\n";
  return text;
}

TuningTable TuningTable::Mean(absl::Span<const TuningTable> tables) {
  struct Times {
    double sum = 0;
    int count = 0;
  };
  absl::btree_map<TuningKey, absl::btree_map<std::string, Times>> all;
  absl::btree_map<TuningKey, int> counts;
  for (const TuningTable& table : tables) {
    for (const auto& [key, kernels] : table.entries_) {
      ++counts[key];
      for (const TunedKernel& kernel : kernels) {
        Times& times = all[key][kernel.kernel];
        times.sum += kernel.seconds;
        ++times.count;
      }
    }
  }
  TuningTable mean;
  for (const auto& [key, kernels] : all) {
    std::vector<TunedKernel> common;
    for (const auto& [name, times] : kernels) {
      if (times.count == counts[key]) common.push_back({name, times.sum / times.count});
    }
    mean.Set(key, std::move(common));
  }
  return mean;
}

TuningTable TuningTable::Merge(const TuningTable& x, const TuningTable& y) {
  const TuningTable both[] = {x, y};
  TuningTable merged = Mean(both);
  for (const auto& [key, kernels] : x.entries_) {
    if (!merged.entries_.contains(key)) merged.Set(key, kernels);
  }
  return merged;
}

void TuningTable::Overlay(const TuningTable& tuned) {
  for (const auto& [key, kernels] : tuned.entries_) {
    entries_[key] = kernels;
    tuned_.insert(key);
  }
}

int TuningTable::DropUnknown() {
  int dropped = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    dropped += static_cast<int>(std::erase_if(entry->second, [](const TunedKernel& kernel) {
      return !FindVariant(kernel.kernel).has_value();
    }));
    entry = entry->second.empty() ? entries_.erase(entry) : std::next(entry);
  }
  return dropped;
}

void TuningTable::Set(const TuningKey& key, std::vector<TunedKernel> kernels) {
  if (kernels.empty()) {
    entries_.erase(key);
    return;
  }
  std::stable_sort(kernels.begin(), kernels.end(), [](const TunedKernel& x, const TunedKernel& y) {
    return x.seconds < y.seconds;
  });
  entries_[key] = std::move(kernels);
}

TuningTable::Hit TuningTable::Find(const TuningKey& key) const {
  const auto found = entries_.lower_bound(key);
  if (key.m < 1 || found == entries_.end()) return {};
  const TuningKey& at = found->first;
  // Written as a difference: 2 * m may overflow.
  const bool near = at.n == key.n && at.k == key.k && at.out == key.out && at.in == key.in &&
                    at.m - key.m <= key.m;
  if (!near) return {};
  return {at, found->second, tuned_.contains(at)};
}

}  // namespace gemmd::kernels::cuda
