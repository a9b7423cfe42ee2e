#include "server/engine/observe/log_escape.h"

#include <cstdint>
#include <cstdio>

namespace gemmd::server {
namespace {

struct CodePoint {
  uint32_t value;
  int bytes;  // 0: not UTF-8
};

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
CodePoint Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const int bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < static_cast<size_t>(bytes)) return {0, 0};
  uint32_t value = lead & (0x7f >> bytes);
  for (int i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    value = value << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kSmallest[bytes] || surrogate || value > 0x10ffff) return {0, 0};
  return {value, bytes};
}

// What a terminal or a log viewer acts on instead of showing.
bool IsActive(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) ||  // C0, DEL and C1: 0x9b starts a sequence
         (code >= 0x2028 && code <= 0x202e) ||             // line separators, bidi overrides
         (code >= 0x2066 && code <= 0x2069);               // bidi isolates
}

void AppendCode(uint32_t code, std::string& out) {
  char escape[8];
  std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(code & 0xffff));
  out += escape;
}

}  // namespace

void AppendQuoted(std::string_view value, std::string& out) {
  out.push_back('"');
  while (!value.empty()) {
    const CodePoint code = Decode(value);
    if (code.bytes == 0) {
      out += "\\ufffd";
      value.remove_prefix(1);
      continue;
    }
    switch (code.value) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (IsActive(code.value)) {
          AppendCode(code.value, out);
        } else {
          out += value.substr(0, code.bytes);
        }
    }
    value.remove_prefix(code.bytes);
  }
  out.push_back('"');
}

}  // namespace gemmd::server
