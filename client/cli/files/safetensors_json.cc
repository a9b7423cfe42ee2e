// The JSON header of .safetensors, as a stream of events: no tree is built, so that nothing grows
// with what a hostile header nests or repeats.

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/files/safetensors.h"

namespace gemmd::files::internal {
namespace {

constexpr size_t kMaxRank = 32;

// Depth 1 is the header, 2 a tensor, 3 one of its two lists. Every handler returns false to stop,
// with error_ set.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  absl::Status error() const { return error_; }
  std::vector<RawTensor> TakeTensors() { return std::move(tensors_); }

  bool start_object(std::size_t) override {
    if (++depth_ > 2 || in_list()) return Fail("an object where none belongs");
    if (depth_ == 2 && !in_metadata_) tensors_.push_back({.name = name_});
    fields_.clear();
    return true;
  }

  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) {
      const RawTensor& tensor = tensors_.back();
      if (tensor.dtype.empty() || !tensor.has_shape || tensor.data_offsets.size() != 2) {
        return Fail("it lacks dtype, shape, or two data_offsets");
      }
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || (field_ != "shape" && field_ != "data_offsets")) {
      return Fail("a list where none belongs");
    }
    if (field_ == "shape") tensors_.back().has_shape = true;
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      if (!names_.insert(key).second) {
        return Fail(
            absl::StrCat("tensor '", absl::CHexEscape(key.substr(0, 80)), "' is there twice"));
      }
      name_ = key;
      in_metadata_ = key == kMetadataKey;  // ignored
      return true;
    }
    if (in_metadata_) return true;
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return Fail(absl::StrCat("unknown key '", absl::CHexEscape(key.substr(0, 80)), "'"));
    }
    if (!fields_.insert(key).second) return Fail(absl::StrCat("key '", key, "' is there twice"));
    field_ = key;
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ != 2 || field_ != "dtype") return Fail("a string where none belongs");
    tensors_.back().dtype = value;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_list()) return Fail("a number where none belongs");
    if (value > static_cast<uint64_t>(INT64_MAX)) return Fail(absl::StrCat(value, " passes 2^63"));
    RawTensor& tensor = tensors_.back();
    std::vector<int64_t>& list = field_ == "shape" ? tensor.shape : tensor.data_offsets;
    if (list.size() == kMaxRank)
      return Fail(absl::StrCat(field_, " has more than ", kMaxRank, " entries"));
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(number_integer_t value) override {
    return Fail(absl::StrCat(value, " where only whole numbers of at least 0 belong"));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Fail(absl::StrCat(text.substr(0, 40), " where only whole numbers below 2^63 belong"));
  }
  bool null() override { return Fail("null where none belongs"); }
  bool boolean(bool) override { return Fail("true or false where none belongs"); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_ =
        absl::InvalidArgumentError(absl::StrCat("the header is not valid JSON at byte ", position));
    return false;
  }

 private:
  bool in_list() const { return depth_ == 3; }

  bool Fail(absl::string_view what) {
    const std::string where =
        depth_ >= 1 && !name_.empty()
            ? absl::StrCat(" at tensor '", absl::CHexEscape(name_.substr(0, 80)), "'")
            : "";
    error_ = absl::InvalidArgumentError(absl::StrCat("the header is wrong", where, ": ", what));
    return false;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_;   // the key at depth 1 that we are in
  std::string field_;  // the key at depth 2 that we are in
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;
  std::vector<RawTensor> tensors_;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<std::vector<RawTensor>> ParseSafetensorsJson(absl::string_view json) {
  Reader reader;
  const bool read = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  if (!reader.error().ok()) return reader.error();
  if (!read) return absl::InvalidArgumentError("the header is not valid JSON");
  return reader.TakeTensors();
}

}  // namespace gemmd::files::internal
