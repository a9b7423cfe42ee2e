#include "client/cli/args/printable.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_format.h"

namespace gemmd::cli {
namespace {

struct CodePoint {
  uint32_t value;
  int bytes;  // 0: not UTF-8
};

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
CodePoint Decode(absl::string_view text) {
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

struct Range {
  uint32_t first, last;
};

// What a terminal acts on, or what changes how its neighbours are read, instead of being shown.
constexpr Range kActive[] = {
    {0x00, 0x1f},        // C0
    {0x7f, 0x9f},        // DEL, C1: U+009B alone starts a sequence
    {0xad, 0xad},        // soft hyphen
    {0x61c, 0x61c},      // Arabic letter mark
    {0x180e, 0x180e},    // Mongolian vowel separator
    {0x200b, 0x200f},    // zero width, left-to-right and right-to-left marks
    {0x2028, 0x202e},    // line and paragraph separators, bidi embeddings and overrides
    {0x2060, 0x206f},    // invisible operators, bidi isolates
    {0xfeff, 0xfeff},    // byte order mark
    {0xfff9, 0xfffb},    // interlinear annotation
    {0xe0000, 0xe007f},  // tags
};

bool IsActive(uint32_t code) {
  return std::any_of(std::begin(kActive), std::end(kActive), [code](const Range& range) {
    return code >= range.first && code <= range.last;
  });
}

void AppendEscape(CodePoint code, uint8_t byte, std::string& out) {
  if (code.bytes == 0 || code.value < 0x80) {
    switch (byte) {
      case '\n':
        out += "\\n";
        return;
      case '\r':
        out += "\\r";
        return;
      case '\t':
        out += "\\t";
        return;
      default:
        absl::StrAppendFormat(&out, "\\x%02x", byte);
    }
  } else if (code.value < 0x10000) {
    absl::StrAppendFormat(&out, "\\u%04x", code.value);
  } else {
    absl::StrAppendFormat(&out, "\\U%08x", code.value);
  }
}

std::string Escaped(absl::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint code = Decode(text);
    const bool newline = lines && text[0] == '\n';
    if (code.bytes > 0 && (newline || !IsActive(code.value))) {
      out.append(text.data(), code.bytes);
    } else {
      AppendEscape(code, static_cast<uint8_t>(text[0]), out);
    }
    text.remove_prefix(std::max(code.bytes, 1));
  }
  return out;
}

}  // namespace

std::string Printable(absl::string_view text) { return Escaped(text, false); }

std::string PrintableLines(absl::string_view text) { return Escaped(text, true); }

std::string PrintableJson(absl::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const CodePoint code = Decode(json);
    const int bytes = std::max(code.bytes, 1);
    // Below DEL the document has its own layout alone: within strings JSON escapes the rest.
    if (code.value < 0x7f || !IsActive(code.value)) {
      out.append(json.data(), bytes);
    } else if (code.value < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", code.value);
    } else {
      const uint32_t rest = code.value - 0x10000;  // as two surrogates
      absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    }
    json.remove_prefix(bytes);
  }
  return out;
}

}  // namespace gemmd::cli
