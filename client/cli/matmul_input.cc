#include "client/cli/matmul_input.h"

#include "absl/strings/str_cat.h"
#include "client/cli/load/weight.h"
#include "client/cli/quantize.h"
#include "client/cpp/scales.h"
#include "status/propagate.h"

namespace gemmd::cli {

absl::StatusOr<MatmulInput> MatmulInput::Find(client::Session& session, const std::string& name) {
  GEMMD_ASSIGN_OR_RETURN(client::Buffer found, session.Find(name));
  const bool served = found.dtype() != client::DType::kUnspecified &&
                      ToClient(ToFile(found.dtype())) == found.dtype();
  if (!served || found.shape().size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("@", name, " is ", client::Name(found.dtype()), " ",
                     files::ShapeText({found.shape().data(), found.shape().size()}),
                     ", no matrix of f32, bf16, f16, e4m3 or i8"));
  }
  MatmulInput input;
  input.published_ = std::move(found);
  return input;
}

client::ScaleGranularity MatmulInput::granularity() const {
  const bool fp8 =
      published() && published_->dtype() == client::DType::kE4M3 && published_->shape().size() == 2;
  return fp8 ? LinearScales(published_->label()) : client::ScaleGranularity::kNone;
}

files::DType MatmulInput::dtype() const {
  return published() ? ToFile(published_->dtype()) : file_.dtype();
}

std::vector<int64_t> MatmulInput::shape() const {
  if (!published()) return file_.shape();
  return {published_->shape().begin(), published_->shape().end()};
}

client::Tensor MatmulInput::scales() const {
  const std::vector<int64_t> values = shape();
  return published_->View(client::DType::kF32, client::ScalesShape(values, granularity()),
                          LinearScalesAt(values[0] * values[1]));
}

}  // namespace gemmd::cli
