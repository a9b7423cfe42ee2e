#include "client/cli/files/safetensors_index.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gemmd::files {
namespace {

constexpr int kMaxDepth = 64;

std::string Shown(absl::string_view name) { return absl::CHexEscape(name.substr(0, 80)); }

// A stream of events, because a tree would keep only the last of two equal keys. Depth 1 is the
// document, 2 its weight_map; what else there is counts as metadata.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  const absl::Status& error() const { return error_; }
  std::map<std::string, std::string> TakeMap() { return std::move(map_); }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      in_map_ = key == "weight_map";
      if (in_map_ && std::exchange(has_map_, true)) return Fail("it has two weight_map");
    } else if (depth_ == 2 && in_map_) {
      name_ = key;
      if (map_.contains(key)) return Fail(absl::StrCat("tensor '", Shown(key), "' is there twice"));
    }
    return true;
  }
  bool string(string_t& value) override {
    if (!in_map_ || depth_ != 2) return true;
    if (value.find('/') != value.npos || !absl::EndsWith(value, ".safetensors")) {
      return Fail(absl::StrCat("tensor '", Shown(name_), "' is said to be in '", Shown(value),
                               "', which is no .safetensors file beside the index"));
    }
    map_.emplace(name_, value);
    return true;
  }
  bool start_object(std::size_t) override { return Deeper(false); }
  bool end_object() override { return Higher(); }
  bool start_array(std::size_t) override { return Deeper(true); }
  bool end_array() override { return Higher(); }
  bool number_unsigned(number_unsigned_t) override { return Other(); }
  bool number_integer(number_integer_t) override { return Other(); }
  bool number_float(number_float_t, const string_t&) override { return Other(); }
  bool null() override { return Other(); }
  bool boolean(bool) override { return Other(); }
  bool binary(binary_t&) override { return Other(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("not valid JSON at byte ", position));
  }

 private:
  bool Fail(const std::string& what) {
    error_ = absl::InvalidArgumentError(absl::StrCat("the index is wrong: ", what));
    return false;
  }
  // A value that is no string where a shard's name belongs.
  bool Other() {
    if (in_map_ && depth_ <= 2) return Fail("weight_map is no object of strings");
    return true;
  }
  bool Deeper(bool list) {
    if (depth_ == 0 && list) return Fail("it is no object");
    if (in_map_ && (depth_ >= 2 || list)) return Other();
    if (++depth_ > kMaxDepth) return Fail(absl::StrCat("it is deeper than ", kMaxDepth));
    return true;
  }
  bool Higher() {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }

  int depth_ = 0;
  bool in_map_ = false;
  bool has_map_ = false;
  std::string name_;
  std::map<std::string, std::string> map_;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(absl::string_view json) {
  Reader reader;
  const bool read = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  if (!reader.error().ok()) return reader.error();
  std::map<std::string, std::string> map = reader.TakeMap();
  if (!read || map.empty()) {
    return absl::InvalidArgumentError(
        "the index is wrong: it has no weight_map with tensors in it");
  }
  return map;
}

}  // namespace gemmd::files
