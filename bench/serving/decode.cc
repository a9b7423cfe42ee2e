#include "bench/serving/decode.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/load/resident.h"
#include "client/cpp/scales.h"

namespace gemmd::bench {
namespace {

using client::Buffer;
using client::DType;
using client::ScaleGranularity;
using client::Tensor;

class Builder {
 public:
  Builder(client::Session& session, const ServingSizes& sizes) : session_(session), sizes_(sizes) {}

  absl::StatusOr<DecodeStep> Build() {
    for (size_t i = 0; i < sizes_.projections.size(); ++i) {
      if (absl::Status status = AddProjection(static_cast<int>(i)); !status.ok()) return status;
    }
    for (int layer = 0; layer < sizes_.layers; ++layer) {
      for (const Projection& projection : projections_) {
        step_.ops.Add(projection.quantize).Add(MatmulOf(projection, layer));
      }
    }
    for (const Projection& projection : projections_) {
      const std::string name =
          absl::StrCat(sizes_.plan_rows, "x", projection.size.n, "x", projection.size.k);
      DecodeStep::Kind quantize = {.name = absl::StrCat(name, " quantize")};
      DecodeStep::Kind matmul = {.name = absl::StrCat(name, " matmul")};
      for (int layer = 0; layer < sizes_.layers; ++layer) {
        quantize.ops.Add(projection.quantize);
        matmul.ops.Add(MatmulOf(projection, layer));
      }
      step_.kinds.push_back(std::move(quantize));
      step_.kinds.push_back(std::move(matmul));
    }
    return std::move(step_);
  }

 private:
  struct Projection {
    MatmulSize size;
    client::Quantize quantize;
    Tensor output;
    std::vector<std::pair<Tensor, Tensor>> weights;  // values and scales, a pair a layer
  };

  absl::StatusOr<Tensor> NewTensor(DType dtype, std::vector<int64_t> shape) {
    absl::StatusOr<Buffer> buffer =
        session_.CreateBuffer({.dtype = dtype, .shape = std::move(shape)});
    if (!buffer.ok()) return buffer.status();
    step_.buffers.push_back(*std::move(buffer));
    return step_.buffers.back().tensor();
  }

  // What the projection reads: the output of the one before it if that has k columns.
  absl::StatusOr<Tensor> InputOf(int index) {
    const int64_t k = sizes_.projections[index].k;
    if (index > 0 && sizes_.projections[index - 1].n == k) return projections_[index - 1].output;
    absl::StatusOr<Buffer> random =
        RandomMatrix(session_, DType::kBF16, sizes_.plan_rows, k, 100 + index);
    if (!random.ok()) return random.status();
    step_.buffers.push_back(*std::move(random));
    return step_.buffers.back().tensor();
  }

  absl::Status AddProjection(int index) {
    const MatmulSize size = sizes_.projections[index];
    const std::vector<int64_t> shape = {sizes_.plan_rows, size.k};
    Projection projection = {.size = size};
    absl::StatusOr<Tensor> input = InputOf(index);
    if (!input.ok()) return input.status();
    absl::StatusOr<Tensor> values = NewTensor(DType::kE4M3, shape);
    if (!values.ok()) return values.status();
    absl::StatusOr<Tensor> scales =
        NewTensor(DType::kF32, client::ScalesRoom(shape, ScaleGranularity::kBlock1x128));
    if (!scales.ok()) return scales.status();
    *scales = client::ScalesIn(*scales, shape, ScaleGranularity::kBlock1x128);
    absl::StatusOr<Tensor> output = NewTensor(DType::kBF16, {sizes_.plan_rows, size.n});
    if (!output.ok()) return output.status();
    projection.quantize.src = *input;
    projection.quantize.dst = *values;
    projection.quantize.scales = *scales;
    projection.quantize.granularity = ScaleGranularity::kBlock1x128;
    projection.output = *output;
    if (absl::Status status = AddWeights(index, projection); !status.ok()) return status;
    projections_.push_back(std::move(projection));
    return absl::OkStatus();
  }

  absl::Status AddWeights(int index, Projection& projection) {
    const MatmulSize& size = projection.size;
    absl::StatusOr<Buffer> first = RandomMatrix(session_, DType::kBF16, size.n, size.k, index);
    if (!first.ok()) return first.status();
    absl::StatusOr<Buffer> first_scales =
        QuantizeInPlace(session_, DType::kE4M3, ScaleGranularity::kBlock128x128, *first);
    if (!first_scales.ok()) return first_scales.status();
    client::OpList copies;
    projection.weights.emplace_back(first->tensor(), first_scales->tensor());
    for (int layer = 1; layer < sizes_.layers; ++layer) {
      absl::StatusOr<Tensor> values = NewTensor(DType::kE4M3, {size.n, size.k});
      if (!values.ok()) return values.status();
      absl::StatusOr<Tensor> scales =
          NewTensor(DType::kF32, {first_scales->shape().begin(), first_scales->shape().end()});
      if (!scales.ok()) return scales.status();
      copies.Add(client::Copy{first->tensor(), *values})
          .Add(client::Copy{first_scales->tensor(), *scales});
      projection.weights.emplace_back(*values, *scales);
    }
    step_.weight_bytes += sizes_.layers * (first->size_bytes() + first_scales->size_bytes());
    step_.buffers.push_back(*std::move(first));
    step_.buffers.push_back(*std::move(first_scales));
    if (copies.size() == 0) return absl::OkStatus();
    return session_.Execute(copies).status();
  }

  client::Matmul MatmulOf(const Projection& projection, int layer) const {
    const auto& [values, scales] = projection.weights[layer];
    return {.a = client::Operand(projection.quantize.dst, ScaleGranularity::kBlock1x128,
                                 projection.quantize.scales),
            .b = client::Operand(values, ScaleGranularity::kBlock128x128, scales),
            .d = projection.output};
  }

  client::Session& session_;
  const ServingSizes& sizes_;
  std::vector<Projection> projections_;
  DecodeStep step_;
};

}  // namespace

absl::StatusOr<DecodeStep> MakeDecodeStep(client::Session& session, const ServingSizes& sizes) {
  return Builder(session, sizes).Build();
}

}  // namespace gemmd::bench
