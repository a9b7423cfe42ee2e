// The wire's ops in the engine's terms, and the engine's answers in the wire's. Errors name the
// field: "ops[2].matmul.a.values.shape: rank 4, limit 3".

#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/types.pb.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "kernels/grouped_problem.h"
#include "kernels/k_grouped.h"
#include "server/engine/scheduling/run.h"

namespace gemmd::server {

struct ConvertedOps {
  std::vector<kernels::Op> ops;
  Inputs inputs;    // of Write ops; point into the request, or are `data`
  int outputs = 0;  // Read ops
  // Writes and Reads that name shared memory and are Copies in `ops`; then also all names as the
  // request has them.
  std::vector<std::pair<size_t, std::string_view>> shared;
  OpNames names;
};

using OpList = google::protobuf::RepeatedPtrField<v1::Op>;

// Resolves every buffer through `slots`. `max_ops` is checked here, before anything is allocated
// for them. `data`, one for each Write op that has data, when it was taken out of them
// (inline_data.h).
absl::StatusOr<ConvertedOps> ConvertOps(const OpList& ops, int max_ops, SlotTable& slots,
                                        const Inputs* data = nullptr);

absl::StatusOr<Handle> ConvertHandle(std::string_view bytes, std::string_view field);
absl::StatusOr<Priority> Convert(v1::Priority priority);
absl::StatusOr<kernels::DType> Convert(v1::DType dtype, std::string_view field);
absl::StatusOr<kernels::MatmulProblem> Convert(const v1::MatmulProblem& problem);
// Its enums; its numbers are kernels::OpOf's to judge.
absl::StatusOr<kernels::GroupedProblem> Convert(const v1::GroupedMatmulProblem& problem);
absl::StatusOr<kernels::KGroupedProblem> Convert(const v1::KGroupedMatmulProblem& problem);
// The type of a buffer, from CreateBuffer or ImportBuffer: dtype, shape and size_bytes agree, or
// say each other.
absl::StatusOr<BufferSpec> ConvertSpec(v1::DType dtype,
                                       const google::protobuf::RepeatedField<int64_t>& shape,
                                       int64_t size_bytes);

// Of a kind that v1::MemoryKind_IsValid knows.
kernels::MemoryKind Convert(v1::MemoryKind kind);

v1::DType ToProto(kernels::DType dtype);
v1::MemoryKind ToProto(kernels::MemoryKind kind);
v1::ChoiceReason ToProto(kernels::ChoiceReason reason);
google::protobuf::Timestamp ToProto(absl::Time time);
google::protobuf::Duration ToProto(absl::Duration duration);
absl::Duration FromProto(const google::protobuf::Duration& duration);

// Report and outputs.
void FillCompletion(const Outcome& outcome, v1::ReportLevel level, v1::Completion& completion);

}  // namespace gemmd::server
