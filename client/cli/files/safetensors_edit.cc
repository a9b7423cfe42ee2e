#include "client/cli/files/safetensors_edit.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/files/safetensors.h"
#include "status/propagate.h"

namespace gemmd::files {
namespace {

using Json = nlohmann::ordered_json;

// The header's __metadata__, or null. `file` was parsed before: its header is sane.
Json MetadataOf(absl::Span<const std::byte> file) {
  uint64_t header_bytes = 0;
  for (int i = 0; i < 8; ++i) header_bytes |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  const char* begin = reinterpret_cast<const char*>(file.data()) + 8;
  // Tensors are not kept: only strings as long as the metadata itself grow.
  const auto keep = [](int depth, Json::parse_event_t event, Json& parsed) {
    return depth != 1 || event != Json::parse_event_t::key || parsed == internal::kMetadataKey;
  };
  const Json header = Json::parse(begin, begin + header_bytes, keep, /*allow_exceptions=*/false);
  return header.is_object() && header.contains(internal::kMetadataKey)
             ? header[internal::kMetadataKey]
             : Json();
}

// Bytes of an element; 0 where the type is unknown or its elements share bytes.
int64_t Width(const SafetensorsEntry& entry) {
  int64_t count = 1;
  for (int64_t extent : entry.shape) {  // of an unknown type nobody has checked it
    if (__builtin_mul_overflow(count, extent, &count)) return 0;
  }
  return count > 0 ? static_cast<int64_t>(entry.data.size()) / count : 0;
}

}  // namespace

absl::StatusOr<SafetensorsEdit> EditSafetensors(absl::Span<const std::byte> file,
                                                absl::string_view name, DType dtype,
                                                std::span<const int64_t> shape) {
  GEMMD_ASSIGN_OR_RETURN(SafetensorsView view, ParseSafetensors(file));
  GEMMD_ASSIGN_OR_RETURN(int64_t bytes, DenseBytes(shape, ElementSize(dtype)));
  std::erase_if(view.tensors, [&](const SafetensorsEntry& entry) { return entry.name == name; });
  size_t place = 0;  // how many tensors lie in front of the new one
  for (size_t i = 0; i < view.tensors.size(); ++i) {
    if (Width(view.tensors[i]) >= ElementSize(dtype)) place = i + 1;
  }
  Json header;
  if (Json metadata = MetadataOf(file); !metadata.is_null()) {
    header[internal::kMetadataKey] = std::move(metadata);
  }
  SafetensorsEdit edit;
  int64_t at = 0;
  const auto add = [&](absl::string_view tensor, absl::string_view type,
                       std::span<const int64_t> extents, int64_t size) {
    header[std::string(tensor)] = {{"dtype", std::string(type)},
                                   {"shape", std::vector<int64_t>(extents.begin(), extents.end())},
                                   {"data_offsets", {at, at + size}}};
    at += size;
  };
  for (size_t i = 0; i <= view.tensors.size(); ++i) {
    if (i == place) add(name, SafetensorsTypeName(dtype), shape, bytes);
    if (i == view.tensors.size()) break;
    const SafetensorsEntry& entry = view.tensors[i];
    add(entry.name, entry.dtype_name, entry.shape, static_cast<int64_t>(entry.data.size()));
    (i < place ? edit.before : edit.after).push_back(entry.data);
  }
  edit.header =
      internal::SafetensorsFrame(header.dump(-1, ' ', false, Json::error_handler_t::replace));
  return edit;
}

}  // namespace gemmd::files
