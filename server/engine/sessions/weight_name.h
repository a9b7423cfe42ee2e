// Names of published buffers, some with a version: "m@2/layer.0/w" is "m/layer.0/w" of version 2 of
// "m". A version stands behind the whole name or behind one of its folders, once.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd::server {

inline constexpr int kMaxNameBytes = 128;
inline constexpr int64_t kMaxVersion = 999'999'999;

struct WeightName {
  std::string_view base;  // "m": what the version is of; the whole name when there is none
  int64_t version = 0;    // 0: none
  std::string_view rest;  // "/layer.0/w", or empty

  bool versioned() const { return version != 0; }
};

// Of 1 to 128 bytes of [A-Za-z0-9._/-], and at most one "@VERSION", whose number is 1 to 999999999
// without leading zeros. INVALID_ARGUMENT otherwise. The parts point into `name`.
absl::StatusOr<WeightName> ParseWeightName(std::string_view name);

// INVALID_ARGUMENT unless it is 1 to 999999999.
absl::Status CheckVersion(int64_t version);

std::string VersionedName(std::string_view base, int64_t version, std::string_view rest = "");

// What a version can stand behind in a name without one, the shortest first: "m", "m/a", "m/a/w".
std::vector<std::string_view> BasesOf(std::string_view name);

}  // namespace gemmd::server
