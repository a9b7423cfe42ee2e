#include "client/cpp/errors.h"

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/types/optional.h"
#include "client/cpp/internal/calls/grpc_status.h"

namespace gemmd::client {
namespace {

constexpr char kReasonKey[] = "gemmd-reason";
constexpr char kRequestIdKey[] = "gemmd-request-id";

std::string Payload(const absl::Status& status, const char* key) {
  const absl::optional<absl::Cord> value = status.GetPayload(key);
  return value ? std::string(*value) : std::string();
}

void SetPayload(absl::Status& status, const char* key, absl::string_view value) {
  if (!value.empty()) status.SetPayload(key, absl::Cord(value));
}

absl::string_view Find(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                       const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

std::string ReasonOf(const absl::Status& status) { return Payload(status, kReasonKey); }

std::string RequestIdOf(const absl::Status& status) { return Payload(status, kRequestIdKey); }

void SetReason(absl::Status& status, absl::string_view reason) {
  SetPayload(status, kReasonKey, reason);
}

void SetRequestId(absl::Status& status, absl::string_view request_id) {
  SetPayload(status, kRequestIdKey, request_id);
}

absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  // The two libraries number the codes alike; gRPC documents its own as google.rpc.Code.
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  const auto& trailing = context.GetServerTrailingMetadata();
  SetReason(result, Find(trailing, kReasonKey));
  SetRequestId(result, Find(trailing, kRequestIdKey));
  return result;
}

Break BreakOf(const absl::Status& status) {
  // The daemon signs every refusal with a reason; the transport signs nothing.
  if (status.ok() || !ReasonOf(status).empty()) return Break::kNone;
  const absl::string_view text = status.message();
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      // gRPC 1.51 has no better sign than this text for a call that never left the process.
      return absl::StartsWith(text, "failed to connect to all addresses") ? Break::kUnsent
                                                                          : Break::kTorn;
    case absl::StatusCode::kUnknown:  // the stream vanished without a status
      return text == "Stream removed" ? Break::kTorn : Break::kNone;
    case absl::StatusCode::kInternal:
      return absl::StrContains(text, "RST_STREAM") ? Break::kTorn : Break::kNone;
    default:
      return Break::kNone;
  }
}

}  // namespace gemmd::client
