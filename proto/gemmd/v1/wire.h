// Protocol Buffers' wire format, read and written by hand where a message would cost a copy: ops,
// which are encoded once and sent many times, data that stays where it is, reports. For server and
// clients alike.
// Field numbers come from the generated classes (v1::Tensor::kShapeFieldNumber), so that the
// compiler notices when the contract moves.

#ifndef GEMMD_V1_WIRE_H_
#define GEMMD_V1_WIRE_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace gemmd::wire {

enum Type : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint32_t Tag(int field, Type type) { return static_cast<uint32_t>(field) << 3 | type; }

inline int VarintSize(uint64_t value) {
  int size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

inline void AppendVarint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

inline void AppendTag(std::string& out, int field, Type type) {
  AppendVarint(out, Tag(field, type));
}

// proto3 leaves out a scalar that is 0.
inline void AppendInt(std::string& out, int field, int64_t value) {
  if (value == 0) return;
  AppendTag(out, field, kVarint);
  AppendVarint(out, static_cast<uint64_t>(value));
}

inline void AppendFixed32(std::string& out, int field, uint32_t value) {
  AppendTag(out, field, kFixed32);
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));  // little-endian, as every machine gemmd runs on
  out.append(bytes, sizeof(bytes));
}

inline void AppendFloat(std::string& out, int field, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  AppendFixed32(out, field, bits);
}

inline void AppendDouble(std::string& out, int field, double value) {
  AppendTag(out, field, kFixed64);
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out.append(bytes, sizeof(bytes));
}

// The tag and length; the caller appends, or sends from elsewhere, `size` bytes.
inline void AppendLength(std::string& out, int field, uint64_t size) {
  AppendTag(out, field, kBytes);
  AppendVarint(out, size);
}

inline void AppendBytes(std::string& out, int field, absl::string_view bytes) {
  AppendLength(out, field, bytes.size());
  out.append(bytes.data(), bytes.size());
}

// A sub-message: what is appended to `out` in this object's life becomes its content.
//   { Nested op(out, 2); AppendInt(out, 1, 7); }
class Nested {
 public:
  Nested(std::string& out, int field) : out_(out) {
    AppendTag(out, field, kBytes);
    start_ = out.size();
    out.push_back(0);  // one byte of length serves up to 127 bytes; more are inserted at the end
  }
  ~Nested() {
    uint64_t size = out_.size() - start_ - 1;
    if (size >= 0x80) out_.insert(start_, VarintSize(size) - 1, '\0');
    size_t at = start_;
    for (; size >= 0x80; size >>= 7) out_[at++] = static_cast<char>(size | 0x80);
    out_[at] = static_cast<char>(size);
  }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  std::string& out_;
  size_t start_;
};

}  // namespace gemmd::wire

#endif  // GEMMD_V1_WIRE_H_
