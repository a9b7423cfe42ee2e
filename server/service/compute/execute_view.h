// ExecuteView: a small ExecuteRequest without inline data, read where its bytes lie. Its ops stay
// bytes, by which a session knows those that it has run before (engine/sessions/recent_programs.h).

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string_view>

#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::server {

struct ExecuteView {
  std::string_view session_id;
  std::string_view ops;  // the fields `ops`, tags and all: an ExecuteRequest of nothing else
  v1::Priority priority = v1::PRIORITY_NORMAL;
  v1::ReportLevel report = v1::REPORT_LEVEL_FULL;
  std::string_view op_id;

  // Nothing when the bytes are no such request, or one that protobuf had better read: with a field
  // twice or between the ops, with one that is not known here; with a Write op, unless its data
  // is taken out (inline_data.h). Points into `bytes`.
  enum class Data { kInside, kTakenOut };
  static std::optional<ExecuteView> Of(std::string_view bytes, Data data = Data::kInside);
};

// The bytes of a small request in one piece; an empty slice for a large one.
grpc::Slice SmallRequest(const grpc::ByteBuffer& request);

}  // namespace gemmd::server
