// The index of a checkpoint in shards: which tensor is in which .safetensors file beside it.

#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::files {

// Tensor -> shard, of {"weight_map": {"tensor": "shard.safetensors"}}; what else the index holds is
// not looked at. INVALID_ARGUMENT for what is no such text, a tensor that is there twice, a shard
// in another folder, and an empty map.
absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(absl::string_view json);

}  // namespace gemmd::files
