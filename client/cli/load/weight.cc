#include "client/cli/load/weight.h"

#include <fnmatch.h>
#include <openssl/evp.h>

#include <algorithm>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/args/printable.h"
#include "client/cli/quantize.h"
#include "client/cpp/scales.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr int64_t kAlignment = 256;
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxRank = 3;
// What checkpoints call the scales of "x.weight".
constexpr absl::string_view kScaleEndings[] = {"_scale_inv", "_scale"};

using client::ScaleGranularity;
using Form = Weight::Form;

absl::Status Bad(const CheckpointTensor& tensor, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(tensor.file, ": tensor '", Printable(tensor.name), "' ", what));
}

bool Like(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool IsFloat(files::DType dtype) {
  return dtype == files::DType::kF32 || dtype == files::DType::kBf16 ||
         dtype == files::DType::kF16 || dtype == files::DType::kF64;
}

int64_t CountOf(absl::Span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

// What scales of a shape are to a matrix [n, k]: of 128x128, also where there is one for all, or
// one a row; kNone: not its scales.
ScaleGranularity GranularityOf(const std::vector<int64_t>& scales,
                               const std::vector<int64_t>& shape) {
  if (scales == client::ScalesShape(shape, ScaleGranularity::kBlock128x128) ||
      CountOf(scales) == 1) {
    return ScaleGranularity::kBlock128x128;
  }
  const bool by_row =
      scales == std::vector<int64_t>{shape[0]} || scales == std::vector<int64_t>{shape[0], 1};
  return by_row ? ScaleGranularity::kPerRow : ScaleGranularity::kNone;
}

// The scales of an E4M3 matrix, if the checkpoint holds any.
const CheckpointTensor* ScalesOf(const CheckpointTensor& values,
                                 const std::map<std::string, const CheckpointTensor*>& by_name) {
  if (values.dtype != files::DType::kE4m3 || values.shape.size() != 2) return nullptr;
  for (absl::string_view ending : kScaleEndings) {
    auto it = by_name.find(absl::StrCat(values.name, ending));
    if (it == by_name.end() || !it->second->dtype || !IsFloat(*it->second->dtype)) continue;
    if (GranularityOf(it->second->shape, values.shape) != ScaleGranularity::kNone) {
      return it->second;
    }
  }
  return nullptr;
}

// As many as wanted: a single one again and again.
std::vector<float> ScaleValues(const CheckpointTensor& scales, int64_t count) {
  std::vector<float> values(count);
  const bool one_for_all = CountOf(scales.shape) == 1;
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(
        files::ElementAt(*scales.dtype, scales.data.data(), one_for_all ? 0 : i));
  }
  return values;
}

const char* FormWord(const Weight& weight) {
  const bool by_row = weight.granularity == ScaleGranularity::kPerRow;
  switch (weight.form) {
    case Form::kPlain:
      break;
    case Form::kWithScales:
      return by_row ? "with-row-scales" : "with-scales";
    case Form::kQuantize:
      return by_row ? "fp8-row" : "fp8-block";
  }
  return "plain";
}

absl::StatusOr<std::string> NameOf(const CheckpointTensor& tensor, const std::string& prefix) {
  std::string name = prefix;
  if (!name.empty() && name.back() != '/') name += '/';
  for (char c : tensor.name) {
    const bool taken = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
                       c == '/' || c == '-';
    name += taken ? c : '-';
  }
  if (tensor.name.empty()) {
    return Bad(tensor, "has no name to be published by; --only '?*' leaves it out");
  }
  if (name.size() > kMaxNameBytes) {
    return Bad(tensor, absl::StrCat("would be published as a name of ", name.size(),
                                    " bytes, limit ", kMaxNameBytes,
                                    "; take a shorter --prefix, or leave it out with --skip"));
  }
  return name;
}

absl::StatusOr<Weight> WeightOf(const CheckpointTensor& tensor, const CheckpointTensor* scales,
                                const WeightOptions& options) {
  Weight weight = {.values = &tensor, .scales = scales, .shape = tensor.shape};
  GEMMD_ASSIGN_OR_RETURN(weight.name, NameOf(tensor, options.prefix));
  if (!tensor.dtype) {
    return Bad(tensor, absl::StrCat("is ", Printable(tensor.dtype_name.substr(0, 40)),
                                    ", which is not served; F32, BF16, F16, F8_E4M3, F8_E5M2, "
                                    "I8 and F64 (narrowed to F32) are: leave it out with --skip"));
  }
  if (weight.shape.empty()) weight.shape = {1};  // a scalar
  if (weight.shape.size() > kMaxRank ||
      std::find(weight.shape.begin(), weight.shape.end(), 0) != weight.shape.end()) {
    return Bad(tensor,
               absl::StrCat("has shape ", files::ShapeText(weight.shape), "; 1 to ", kMaxRank,
                            " extents of at least 1 are served: leave it out with --skip"));
  }
  const bool floats = IsFloat(*tensor.dtype);
  const bool matrix = weight.shape.size() == 2;
  weight.dtype =
      *tensor.dtype == files::DType::kF64 ? client::DType::kF32 : ToClient(*tensor.dtype);
  if (scales != nullptr) {
    weight.form = Form::kWithScales;
    weight.granularity = GranularityOf(scales->shape, weight.shape);
  } else if (options.quantize != ScaleGranularity::kNone && floats && matrix) {
    weight.form = Form::kQuantize;
    weight.granularity = options.quantize;
    weight.dtype = client::DType::kE4M3;
  }
  weight.size_bytes = CountOf(weight.shape) * client::SizeBytes(weight.dtype);
  const bool linear = matrix && (floats || weight.form != Form::kPlain);
  weight.label = weight.granularity == ScaleGranularity::kPerRow ? kLinearByRowLabel
                 : linear                                        ? kLinearLabel
                                                                 : "gemmctl load";
  if (weight.form != Form::kPlain) {
    const int64_t count = CountOf(client::ScalesShape(weight.shape, weight.granularity));
    weight.size_bytes =
        LinearScalesAt(weight.size_bytes) + LinearScalesAt(count * int64_t{sizeof(float)});
    if (scales != nullptr) weight.scale_values = ScaleValues(*scales, count);
  }
  return weight;
}

}  // namespace

ScaleGranularity LinearScales(absl::string_view label) {
  absl::ConsumeSuffix(&label, kLinearBias);
  if (label == kLinearLabel) return ScaleGranularity::kBlock128x128;
  return label == kLinearByRowLabel ? ScaleGranularity::kPerRow : ScaleGranularity::kNone;
}

int64_t LinearScalesAt(int64_t value_bytes) {
  return (value_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

absl::StatusOr<std::vector<Weight>> WeightsOf(const Checkpoint& checkpoint,
                                              const WeightOptions& options) {
  std::map<std::string, const CheckpointTensor*> wanted;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    if (!options.only.empty() && !Like(options.only, tensor.name)) continue;
    if (!options.skip.empty() && Like(options.skip, tensor.name)) continue;
    if (!wanted.emplace(tensor.name, &tensor).second) return Bad(tensor, "is there twice");
  }
  if (checkpoint.tensors.empty()) {
    return absl::InvalidArgumentError("the checkpoint holds no tensor");
  }
  if (wanted.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("none of the ", checkpoint.tensors.size(), " tensors is left by --only '",
                     options.only, "' and --skip '", options.skip, "'; * takes slashes and dots"));
  }
  std::map<const CheckpointTensor*, const CheckpointTensor*> scales;  // by values
  std::map<const CheckpointTensor*, bool> taken;                      // as another's scales
  for (const auto& [name, tensor] : wanted) {
    if (const CheckpointTensor* found = ScalesOf(*tensor, wanted)) {
      scales[tensor] = found;
      taken[found] = true;
    }
  }
  std::vector<Weight> weights;
  std::map<std::string, const CheckpointTensor*> names;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    auto it = wanted.find(tensor.name);
    if (it == wanted.end() || taken.contains(&tensor)) continue;
    auto beside = scales.find(&tensor);
    absl::StatusOr<Weight> weight =
        WeightOf(tensor, beside == scales.end() ? nullptr : beside->second, options);
    if (!weight.ok()) return weight.status();
    auto [named, fresh] = names.emplace(weight->name, &tensor);
    if (!fresh) {
      return Bad(tensor, absl::StrCat("and '", Printable(named->second->name),
                                      "' would both be published as ", weight->name,
                                      "; leave one out with --skip"));
    }
    weights.push_back(*std::move(weight));
  }
  return weights;
}

std::string ContentHash(const Weight& weight) {
  const std::string head = absl::StrCat("gemmd-weight/1 ", FormWord(weight), " ",
                                        files::DTypeName(*weight.values->dtype), " ",
                                        absl::StrJoin(weight.shape, "x"), "\n");
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  EVP_DigestUpdate(context.get(), head.data(), head.size());
  EVP_DigestUpdate(context.get(), weight.values->data.data(), weight.values->data.size());
  EVP_DigestUpdate(context.get(), weight.scale_values.data(),
                   weight.scale_values.size() * sizeof(float));
  std::string hash(32, '\0');
  EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(hash.data()), nullptr);
  return hash;
}

}  // namespace gemmd::cli
