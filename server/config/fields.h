// Section: a message of the config and the path to it. Reads its numbers, checks their ranges and
// fills in defaults, in the message too: once all of it is converted, it is what --print-config
// shows. Fields keeps the first error, so that a conversion reads as a plain list of fields.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"

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
  // Notes an error: what, value, limit, remedy, in `message`.
  void Fail(const std::string& path, std::string_view message);
  void Fail(const absl::Status& status) { status_.Update(status); }

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

class Section {
 public:
  Section(std::string path, google::protobuf::Message& message, Fields& fields)
      : path_(std::move(path)), message_(message), fields_(fields) {}

  // The field, or `fallback` where it is not given (0, unless it is `optional`): either has to be
  // in range.
  int64_t Int(absl::string_view name, const IntRange& range, int64_t fallback);
  // The same, but `fallback` may be out of range: 0 stands for what is worked out later.
  int64_t IntOrUnset(absl::string_view name, const IntRange& range, int64_t fallback = 0);
  // Int of a field whose name ends in its unit, _ms or _us.
  absl::Duration Time(absl::string_view name, const IntRange& range, absl::Duration fallback);
  double Double(absl::string_view name, double min, double max, double fallback);

  // "listeners[1].tls" of "tls".
  std::string At(absl::string_view name) const;
  void Fail(absl::string_view name, std::string_view message) { fields_.Fail(At(name), message); }

 private:
  const google::protobuf::FieldDescriptor& Field(absl::string_view name) const;
  bool Given(const google::protobuf::FieldDescriptor& field) const;
  void SetInt(const google::protobuf::FieldDescriptor& field, int64_t value);

  const std::string path_;
  google::protobuf::Message& message_;
  Fields& fields_;
};

// For messages: in quotes, escaped, cut after 64 bytes.
std::string Quoted(std::string_view value);

}  // namespace gemmd::server
