// The index of a checkpoint in shards. Any bytes: no crash; shards lie beside the index, and an
// error says what is wrong.

#include <cstddef>
#include <cstdint>

#include "client/cli/files/safetensors_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto map = gemmd::files::ParseSafetensorsIndex(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!map.ok()) {
    if (map.status().message().empty()) __builtin_trap();
    return 0;
  }
  if (map->empty()) __builtin_trap();
  for (const auto& [tensor, shard] : *map) {
    if (shard.find('/') != shard.npos || !shard.ends_with(".safetensors")) __builtin_trap();
  }
  return 0;
}
