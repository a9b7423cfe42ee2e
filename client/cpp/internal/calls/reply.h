// Reply: an ExecuteResponse whose outputs and report stay where gRPC received them until they are
// asked for.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {

// An output or the report, in one run or in several. Const use from several threads is safe.
class ReplyBytes {
 public:
  void Append(absl::string_view run);  // before anything is read
  size_t size() const { return size_; }
  void CopyTo(char* target) const;
  absl::string_view View() const;  // gathers several runs, the first time

 private:
  absl::InlinedVector<absl::string_view, 1> runs_;
  size_t size_ = 0;
  mutable std::once_flag gathered_;
  mutable std::string whole_;
};

struct Reply {
  // INTERNAL for bytes that are no ExecuteResponse.
  static absl::StatusOr<std::unique_ptr<Reply>> Read(grpc::ByteBuffer bytes);
  // Takes its report and outputs.
  static std::unique_ptr<Reply> Of(v1::Completion& completion);

  // Of a plan of five hundred ops it takes 90 us to decode. Empty when the server sent none.
  const v1::ProgramReport& Report() const;

  bool replayed = false;
  std::deque<ReplyBytes> outputs;  // they cannot move
  ReplyBytes report_bytes;

  // What they point into.
  grpc::ByteBuffer received;
  google::protobuf::RepeatedPtrField<std::string> parsed;
  std::shared_ptr<const void> elsewhere;

 private:
  mutable std::once_flag decoded_;
  mutable v1::ProgramReport report_;
};

}  // namespace gemmd::client
