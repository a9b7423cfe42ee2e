// Fields: reads numbers of the config message, fills in defaults and checks ranges. It keeps the
// first error, so that a conversion reads as a plain list of fields.

#ifndef GEMMD_SERVER_CONFIG_FIELDS_H_
#define GEMMD_SERVER_CONFIG_FIELDS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gemmd::server {

inline constexpr int64_t kMaxInt32 = 2147483647;
inline constexpr int64_t kMaxConfigBytes = int64_t{1} << 50;  // 1 PiB: sums of them do not overflow

struct IntRange {
  int64_t min = 1;
  int64_t max = kMaxInt32;
  // The field that a bound comes from; empty for a bound of the schema.
  std::string_view min_field = {};
  std::string_view max_field = {};
};

class Fields {
 public:
  // `value`, or `fallback` when it is 0: either has to be in range.
  int64_t Int(const std::string& path, int64_t value, const IntRange& range, int64_t fallback);
  // The same for a field whose default is worked out later: 0 stays 0.
  int64_t IntOrUnset(const std::string& path, int64_t value, const IntRange& range);
  double Double(const std::string& path, double value, double min, double max, double fallback);

  // Notes an error: what, value, limit, remedy, in `message`.
  void Fail(const std::string& path, std::string_view message);
  void Fail(const absl::Status& status) { status_.Update(status); }

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// For messages: in quotes, escaped, cut after 64 bytes.
std::string Quoted(std::string_view value);

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_CONFIG_FIELDS_H_
