#include "bench/load/resident.h"

#include <random>
#include <vector>

#include "client/cpp/scales.h"

namespace gemmd::bench {

using client::Buffer;
using client::DType;
using client::ScaleGranularity;

// Converted on the server from FP32. Of [-1, 1) I8 would keep zeros.
absl::StatusOr<Buffer> RandomMatrix(client::Session& session, DType dtype, int64_t rows, int64_t k,
                                    int seed) {
  std::mt19937 random(seed);
  const float reach = dtype == DType::kI8 ? 100.0f : 1.0f;
  std::uniform_real_distribution<float> any(-reach, reach);
  std::vector<float> values(rows * k);
  for (float& value : values) value = any(random);
  absl::StatusOr<Buffer> source = session.CreateBuffer({.dtype = DType::kF32, .shape = {rows, k}});
  if (!source.ok()) return source;
  absl::StatusOr<client::TransferReport> moved =
      source->Upload(client::AsBytes(absl::MakeConstSpan(values)));
  if (!moved.ok()) return moved.status();
  if (dtype == DType::kF32) return source;
  absl::StatusOr<Buffer> converted = session.CreateBuffer({.dtype = dtype, .shape = {rows, k}});
  if (!converted.ok()) return converted;
  client::OpList ops;
  ops.Add(client::Convert{source->tensor(), converted->tensor()});
  absl::StatusOr<client::Result> done = session.Execute(ops);
  if (!done.ok()) return done.status();
  return converted;
}

absl::StatusOr<Buffer> QuantizeInPlace(client::Session& session, DType dtype,
                                       ScaleGranularity granularity, Buffer& matrix) {
  const std::vector<int64_t> shape(matrix.shape().begin(), matrix.shape().end());
  absl::StatusOr<Buffer> values = session.CreateBuffer({.dtype = dtype, .shape = shape});
  if (!values.ok()) return values;
  absl::StatusOr<Buffer> scales =
      session.CreateBuffer({.dtype = DType::kF32, .shape = client::ScalesRoom(shape, granularity)});
  if (!scales.ok()) return scales;
  const client::Operand quantized = OperandOf(*values, granularity, *scales);
  client::OpList ops;
  ops.Add(client::Quantize{.src = matrix.tensor(),
                           .dst = quantized.values,
                           .scales = quantized.scales,
                           .granularity = granularity});
  absl::StatusOr<client::Result> done = session.Execute(ops);
  if (!done.ok()) return done.status();
  matrix = *std::move(values);
  return scales;
}

client::Operand OperandOf(const Buffer& values, ScaleGranularity granularity,
                          const Buffer& scales) {
  if (granularity == ScaleGranularity::kNone) return client::Operand(values.tensor());
  return client::Operand(values.tensor(), granularity,
                         client::ScalesIn(scales.tensor(), values.shape(), granularity));
}

client::OpList ResidentMatmul::Repeated(int64_t count) const {
  client::OpList list;
  for (int64_t i = 0; i < count; ++i) list.Add(op);
  return list;
}

absl::StatusOr<ResidentMatmul> MakeResident(client::Session& session, const ResidentSpec& spec) {
  ResidentMatmul resident;
  absl::StatusOr<Buffer> a = RandomMatrix(session, spec.dtype, spec.m, spec.k, 1);
  if (!a.ok()) return a.status();
  absl::StatusOr<Buffer> b = RandomMatrix(session, spec.dtype, spec.n, spec.k, 2);
  if (!b.ok()) return b.status();
  absl::StatusOr<Buffer> d =
      session.CreateBuffer({.dtype = spec.out_dtype, .shape = {spec.m, spec.n}});
  if (!d.ok()) return d.status();
  if (spec.quantize.dtype != DType::kUnspecified) {
    absl::StatusOr<Buffer> a_scales =
        QuantizeInPlace(session, spec.quantize.dtype, spec.quantize.a, *a);
    if (!a_scales.ok()) return a_scales.status();
    absl::StatusOr<Buffer> b_scales =
        QuantizeInPlace(session, spec.quantize.dtype, spec.quantize.b, *b);
    if (!b_scales.ok()) return b_scales.status();
    resident.a_scales = *std::move(a_scales);
    resident.b_scales = *std::move(b_scales);
  }
  resident.a = *std::move(a);
  resident.b = *std::move(b);
  resident.d = *std::move(d);
  resident.op = {.a = OperandOf(resident.a, spec.quantize.a, resident.a_scales),
                 .b = OperandOf(resident.b, spec.quantize.b, resident.b_scales),
                 .d = resident.d.tensor(),
                 .kernel = spec.kernel};
  resident.ops = resident.Repeated(1);
  resident.flops =
      2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k);
  return resident;
}

}  // namespace gemmd::bench
