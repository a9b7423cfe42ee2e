#include "bench/load/inline_matmul.h"

#include <string>
#include <utility>

namespace gemmd::bench {
namespace {

// A buffer as it lies: scales too, whose layout the matmul's tensor is a view of.
absl::Status AddWrite(const client::Buffer& buffer, InlineMatmul& made) {
  std::string bytes(buffer.size_bytes(), '\0');
  const absl::StatusOr<client::TransferReport> moved = buffer.Download(absl::MakeSpan(bytes));
  if (!moved.ok()) return moved.status();
  made.ops.Add(client::Write{buffer.tensor(), bytes});
  made.inputs.push_back(std::move(bytes));
  made.bytes_in += buffer.size_bytes();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<InlineMatmul> MakeInline(const ResidentMatmul& resident) {
  InlineMatmul made;
  absl::Status status = AddWrite(resident.a, made);
  if (status.ok() && resident.op.a.granularity != client::ScaleGranularity::kNone) {
    status = AddWrite(resident.a_scales, made);
  }
  if (!status.ok()) return status;
  made.ops.Add(resident.op).Add(client::Read{resident.d.tensor()});
  made.bytes_out = resident.d.size_bytes();
  return made;
}

}  // namespace gemmd::bench
