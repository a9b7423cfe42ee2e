// Where the scales of a matrix lie that the server quantises: the buffer to make, and the tensor
// over it.
//
// Scales of 1x128 are laid out column after column, each padded to a multiple of 4 floats: the
// FP8 kernels of a GPU read A's scales so, and in any other layout a kernel copies them first, for
// every matmul. Quantize writes through any strides, so the better layout costs nothing. Scales of
// the other granularities are row-major.
//
//   constexpr auto kBlocks = ScaleGranularity::kBlock1x128;
//   auto values = session.CreateBuffer({.dtype = DType::kE4M3, .shape = {m, k}});
//   auto room = session.CreateBuffer({.dtype = DType::kF32, .shape = ScalesRoom({m, k}, kBlocks)});
//   Operand a(values->tensor(), kBlocks, ScalesIn(room->tensor(), {m, k}, kBlocks));
//   ops.Add(Quantize{x, a.values, a.scales, kBlocks}).Add(Matmul{.a = a, .b = w, .d = y});

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/cpp/tensor.h"
#include "client/cpp/types.h"

namespace gemmd::client {

// The shape of the scales themselves, as ScaleGranularity has it, of values [rows, k] or
// [batch, rows, k]; a batch's lead with the batch. Empty for kNone.
std::vector<int64_t> ScalesShape(absl::Span<const int64_t> values, ScaleGranularity granularity);

// The shape of an FP32 buffer for them: [ceil(k/128), rows rounded up to 4] for kBlock1x128, a
// batch in front; ScalesShape for the others.
std::vector<int64_t> ScalesRoom(absl::Span<const int64_t> values, ScaleGranularity granularity);

// The scales in `room`, which is dense and has the elements of ScalesRoom: a tensor of ScalesShape,
// for 1x128 with strides [1, rows rounded up to 4]. Invalid (Tensor::status) if room does not fit.
// To be taken without a copy it must start at a multiple of 16 bytes, as every buffer does.
Tensor ScalesIn(const Tensor& room, absl::Span<const int64_t> values, ScaleGranularity granularity);

}  // namespace gemmd::client
