// IsJsonObject: a strict reader of RFC 8259, to hold log lines against. It keeps nothing.

#pragma once

#include <cctype>
#include <cstring>
#include <string_view>

namespace gemmd::server {

class JsonChecker {
 public:
  explicit JsonChecker(std::string_view text) : rest_(text) {}

  bool Object() {
    if (!Eat('{')) return false;
    if (Eat('}')) return true;
    do {
      if (!String() || !Eat(':') || !Value()) return false;
    } while (Eat(','));
    return Eat('}');
  }
  bool AtEnd() const { return rest_.empty(); }

 private:
  bool Eat(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool EatWord(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool Value() {
    if (rest_.empty()) return false;
    if (rest_[0] == '"') return String();
    if (rest_[0] == '{') return Object();
    return EatWord("true") || EatWord("false") || EatWord("null") || Number();
  }
  bool Digits() {
    const size_t before = rest_.size();
    while (!rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_[0]))) Eat(rest_[0]);
    return rest_.size() < before;
  }
  bool Number() {
    Eat('-');
    if (!Eat('0') && !Digits()) return false;
    if (Eat('.') && !Digits()) return false;
    if (Eat('e') || Eat('E')) {
      if (!Eat('+')) Eat('-');
      return Digits();
    }
    return true;
  }
  bool Escape() {
    if (Eat('u')) {
      for (int i = 0; i < 4; ++i) {
        if (rest_.empty() || !std::isxdigit(static_cast<unsigned char>(rest_[0]))) return false;
        rest_.remove_prefix(1);
      }
      return true;
    }
    if (rest_.empty() || std::strchr("\"\\/bfnrt", rest_[0]) == nullptr) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool String() {
    if (!Eat('"')) return false;
    while (!rest_.empty()) {
      if (Eat('"')) return true;
      if (Eat('\\')) {
        if (!Escape()) return false;
        continue;
      }
      if (static_cast<unsigned char>(rest_[0]) < 0x20) return false;
      rest_.remove_prefix(1);
    }
    return false;
  }

  std::string_view rest_;
};

inline bool IsJsonObject(std::string_view text) {
  JsonChecker checker(text);
  return checker.Object() && checker.AtEnd();
}

}  // namespace gemmd::server
