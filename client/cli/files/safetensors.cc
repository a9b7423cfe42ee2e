#include "client/cli/files/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "status/propagate.h"

namespace gemmd::files {
namespace {

constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kDataAlignment = 64;

struct TypeName {
  absl::string_view name;
  int64_t bits;
  std::optional<DType> dtype;
};

// Those without a dtype are only sized, so that a file of mixed tensors can be read.
constexpr TypeName kTypes[] = {
    {"F32", 32, DType::kF32}, {"BF16", 16, DType::kBf16},
    {"F16", 16, DType::kF16}, {"F8_E4M3", 8, DType::kE4m3},
    {"I8", 8, DType::kI8},    {"F8_E5M2", 8, DType::kE5m2},
    {"F64", 64, DType::kF64}, {"U8", 8, {}},
    {"BOOL", 8, {}},          {"I16", 16, {}},
    {"U16", 16, {}},          {"I32", 32, {}},
    {"U32", 32, {}},          {"I64", 64, {}},
    {"U64", 64, {}},
};

absl::Status BadFile(std::string message) { return absl::InvalidArgumentError(message); }

std::string Shown(absl::string_view name) { return absl::CHexEscape(name.substr(0, 80)); }

absl::StatusOr<SafetensorsEntry> CheckTensor(internal::RawTensor raw,
                                             absl::Span<const std::byte> data) {
  const int64_t begin = raw.data_offsets[0];
  const int64_t end = raw.data_offsets[1];
  if (begin > end || end > static_cast<int64_t>(data.size())) {
    return BadFile(absl::StrCat(
        "tensor '", Shown(raw.name), "' lies at bytes ", begin, " to ", end, ", the file has ",
        data.size(), " after its header: ", begin > end ? "the header lies" : "it is cut short"));
  }
  SafetensorsEntry entry;
  for (const TypeName& type : kTypes) {
    if (type.name != raw.dtype) continue;
    absl::StatusOr<int64_t> wanted = DenseBytes(raw.shape, type.bits / 8);
    if (!wanted.ok()) {
      return BadFile(absl::StrCat("tensor '", Shown(raw.name), "': ", wanted.status().message()));
    }
    if (*wanted != end - begin) {
      return BadFile(absl::StrCat("tensor '", Shown(raw.name), "' of shape ", ShapeText(raw.shape),
                                  " and type ", Shown(raw.dtype), " takes ", *wanted,
                                  " bytes, its data_offsets span ", end - begin));
    }
    entry.dtype = type.dtype;
  }
  entry.name = std::move(raw.name);
  entry.dtype_name = std::move(raw.dtype);
  entry.shape = std::move(raw.shape);
  entry.data = data.subspan(begin, end - begin);
  return entry;
}

}  // namespace

absl::StatusOr<SafetensorsView> ParseSafetensors(absl::Span<const std::byte> file) {
  if (file.size() < 8) {
    return BadFile(absl::StrCat("the file has ", file.size(),
                                " bytes, a .safetensors file at least 8: it is cut short"));
  }
  uint64_t header_bytes = 0;
  for (int i = 0; i < 8; ++i) header_bytes |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return BadFile(absl::StrCat("the header claims ", header_bytes, " bytes, the format allows ",
                                kMaxSafetensorsHeaderBytes,
                                ": not a .safetensors file, or damaged"));
  }
  if (header_bytes > file.size() - 8) {
    return BadFile(absl::StrCat("the header claims ", header_bytes, " bytes, the file has ",
                                file.size() - 8, " left: it is cut short"));
  }
  GEMMD_ASSIGN_OR_RETURN(std::vector<internal::RawTensor> raw,
                         internal::ParseSafetensorsJson(absl::string_view(
                             reinterpret_cast<const char*>(file.data()) + 8, header_bytes)));
  const absl::Span<const std::byte> data = file.subspan(8 + header_bytes);
  SafetensorsView view;
  for (internal::RawTensor& tensor : raw) {
    GEMMD_ASSIGN_OR_RETURN(SafetensorsEntry entry, CheckTensor(std::move(tensor), data));
    view.tensors.push_back(std::move(entry));
  }
  // Back to back from the first byte to the last: bytes that belong to no tensor, or to two, are
  // how a file smuggles.
  std::stable_sort(view.tensors.begin(), view.tensors.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return std::pair(a.data.data(), a.data.size()) <
                            std::pair(b.data.data(), b.data.size());
                   });
  const std::byte* covered = data.data();
  for (const SafetensorsEntry& entry : view.tensors) {
    if (entry.data.data() != covered) {
      return BadFile(absl::StrCat("tensor '", Shown(entry.name), "' begins at byte ",
                                  entry.data.data() - data.data(), ", the one before ends at ",
                                  covered - data.data(), ": ",
                                  entry.data.data() < covered ? "they overlap" : "there is a gap"));
    }
    covered += entry.data.size();
  }
  if (covered != data.data() + data.size()) {
    return BadFile(absl::StrCat("the tensors end at byte ", covered - data.data(), ", the file at ",
                                data.size(),
                                " after its header: it holds more than its header says"));
  }
  return view;
}

absl::StatusOr<const SafetensorsEntry*> SafetensorsView::Find(absl::string_view name) const {
  if (name.empty() && tensors.size() == 1) return &tensors[0];
  std::string names;
  for (const SafetensorsEntry& entry : tensors) {
    if (entry.name == name) return &entry;
    if (&entry - tensors.data() < 8)
      absl::StrAppend(&names, names.empty() ? "" : ", ", Shown(entry.name));
  }
  if (tensors.size() > 8) absl::StrAppend(&names, ", ...");
  if (name.empty()) {
    return BadFile(absl::StrCat("the file holds ", tensors.size(), " tensors (", names,
                                "); name one as FILE:NAME"));
  }
  return absl::NotFoundError(
      absl::StrCat("there is no tensor '", Shown(name), "'; there ",
                   tensors.empty() ? "are none" : absl::StrCat("are ", names)));
}

absl::string_view SafetensorsTypeName(DType dtype) {
  for (const TypeName& type : kTypes) {
    if (type.dtype == dtype) return type.name;
  }
  return "";
}

std::string SafetensorsHeader(absl::string_view name, DType dtype, std::span<const int64_t> shape) {
  const int64_t bytes = DenseBytes(shape, ElementSize(dtype)).value_or(0);
  nlohmann::ordered_json header;
  header[std::string(name)] = {{"dtype", std::string(SafetensorsTypeName(dtype))},
                               {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                               {"data_offsets", {0, bytes}}};
  return internal::SafetensorsFrame(
      header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

std::string internal::SafetensorsFrame(std::string json) {
  json.append((kDataAlignment - (8 + json.size()) % kDataAlignment) % kDataAlignment, ' ');
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(json.size() >> (8 * i)));
  return out + json;
}

}  // namespace gemmd::files
