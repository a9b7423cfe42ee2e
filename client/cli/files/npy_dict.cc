// The dictionary in a .npy header: a Python literal, read by a grammar of just what numpy writes.

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/files/npy.h"
#include "status/propagate.h"

namespace gemmd::files::internal {
namespace {

constexpr size_t kMaxRank = 32;  // numpy's own limit

class DictReader {
 public:
  explicit DictReader(absl::string_view text) : text_(text) {}

  absl::StatusOr<NpyDict> Read() {
    NpyDict dict;
    bool seen[3] = {false, false, false};  // descr, fortran_order, shape
    if (!Take('{')) return Expected("'{'");
    while (!Take('}')) {
      GEMMD_ASSIGN_OR_RETURN(std::string key, String());
      if (!Take(':')) return Expected("':'");
      const int field = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      if (field < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("key '", absl::CHexEscape(key),
                         "' in the header is none of descr, fortran_order, shape"));
      }
      if (seen[field]) {
        return absl::InvalidArgumentError(absl::StrCat("key '", key, "' is in the header twice"));
      }
      seen[field] = true;
      GEMMD_RETURN_IF_ERROR(Value(field, dict));
      if (!Take(',') && Peek() != '}') return Expected("',' or '}'");
    }
    SkipSpace();
    if (at_ != text_.size()) return Expected("the end of the header");
    if (!seen[0] || !seen[1] || !seen[2]) {
      return absl::InvalidArgumentError("the header lacks one of descr, fortran_order, shape");
    }
    return dict;
  }

 private:
  absl::Status Value(int field, NpyDict& dict) {
    if (field == 1) return Bool(dict.fortran_order);
    if (field == 2) return Shape(dict.shape);
    if (Peek() == '[') {
      return absl::InvalidArgumentError(
          "the array has structured elements (several fields); save one field of it");
    }
    GEMMD_ASSIGN_OR_RETURN(dict.descr, String());
    return absl::OkStatus();
  }

  absl::Status Bool(bool& value) {
    SkipSpace();
    for (bool candidate : {true, false}) {
      const absl::string_view word = candidate ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      value = candidate;
      return absl::OkStatus();
    }
    return Expected("True or False");
  }

  absl::Status Shape(std::vector<int64_t>& shape) {
    if (!Take('(')) return Expected("'('");
    while (!Take(')')) {
      if (shape.size() == kMaxRank) {
        return absl::InvalidArgumentError(
            absl::StrCat("the shape has more than ", kMaxRank, " extents"));
      }
      SkipSpace();
      const size_t start = at_;
      while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) ++at_;
      const absl::string_view digits = text_.substr(start, at_ - start);
      int64_t extent = 0;
      if (digits.empty()) return Expected("an extent");
      if (!absl::SimpleAtoi(digits, &extent)) {
        return absl::InvalidArgumentError(
            absl::StrCat("extent ", digits.substr(0, 40), " in the shape passes 2^63"));
      }
      shape.push_back(extent);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote "3L"
      if (!Take(',') && Peek() != ')') return Expected("',' or ')'");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> String() {
    SkipSpace();
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Expected("a quoted string");
    const size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\\') ++at_;
    if (Peek() != quote) return Expected("a closing quote");
    return std::string(text_.substr(start, at_++ - start));
  }

  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  char Peek() {
    SkipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool Take(char wanted) {
    if (Peek() != wanted) return false;
    ++at_;
    return true;
  }

  absl::Status Expected(absl::string_view what) const {
    const std::string found = at_ < text_.size()
                                  ? absl::StrCat("'", absl::CHexEscape(text_.substr(at_, 16)), "'")
                                  : "its end";
    return absl::InvalidArgumentError(
        absl::StrCat("the header's dictionary has ", found, " at byte ", at_, ", expected ", what));
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<NpyDict> ParseNpyDict(absl::string_view text) { return DictReader(text).Read(); }

}  // namespace gemmd::files::internal
