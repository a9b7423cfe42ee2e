// Reasons: one stable upper-case word beside each error's text, for programs that react to errors
// and for the metric label `reason`. Carried as a Status payload; the service sends it as trailing
// metadata `gemmd-reason`.

#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gemmd::server {

namespace reason {
inline constexpr std::string_view kSessionGone = "SESSION_GONE";
inline constexpr std::string_view kBufferGone = "BUFFER_GONE";
inline constexpr std::string_view kPlanGone = "PLAN_GONE";
inline constexpr std::string_view kNameUnknown = "NAME_UNKNOWN";
inline constexpr std::string_view kNameTaken = "NAME_TAKEN";
inline constexpr std::string_view kVersioned = "VERSIONED";
inline constexpr std::string_view kHeld = "HELD";
inline constexpr std::string_view kReadOnly = "READ_ONLY";
inline constexpr std::string_view kOpIdReused = "OP_ID_REUSED";
inline constexpr std::string_view kUploadBusy = "UPLOAD_BUSY";
inline constexpr std::string_view kChecksum = "CHECKSUM";
inline constexpr std::string_view kSessionLimit = "SESSION_LIMIT";
inline constexpr std::string_view kBufferLimit = "BUFFER_LIMIT";
inline constexpr std::string_view kBufferBytesLimit = "BUFFER_BYTES_LIMIT";
inline constexpr std::string_view kPlanLimit = "PLAN_LIMIT";
inline constexpr std::string_view kArmedLimit = "ARMED_LIMIT";
inline constexpr std::string_view kNotArmed = "NOT_ARMED";
inline constexpr std::string_view kHostBytesLimit = "HOST_BYTES_LIMIT";
inline constexpr std::string_view kStreamLimit = "STREAM_LIMIT";
inline constexpr std::string_view kQueueLimit = "QUEUE_LIMIT";
inline constexpr std::string_view kOpsLimit = "OPS_LIMIT";
inline constexpr std::string_view kProgramLimit = "PROGRAM_LIMIT";
inline constexpr std::string_view kInlineLimit = "INLINE_LIMIT";
inline constexpr std::string_view kWindow = "WINDOW";
inline constexpr std::string_view kDeviceMemory = "DEVICE_MEMORY";
inline constexpr std::string_view kDeadline = "DEADLINE";
inline constexpr std::string_view kCancelled = "CANCELLED";
inline constexpr std::string_view kEarlierBatch = "EARLIER_BATCH_FAILED";
inline constexpr std::string_view kDraining = "DRAINING";
inline constexpr std::string_view kDeviceFenced = "DEVICE_FENCED";
inline constexpr std::string_view kNoKernel = "NO_KERNEL";
inline constexpr std::string_view kOtherDevice = "OTHER_DEVICE";
inline constexpr std::string_view kNotShared = "NOT_SHARED";
inline constexpr std::string_view kNoCredentials = "NO_CREDENTIALS";
inline constexpr std::string_view kBadToken = "BAD_TOKEN";
inline constexpr std::string_view kExpiredToken = "EXPIRED_TOKEN";
inline constexpr std::string_view kUnknownCertificate = "UNKNOWN_CERTIFICATE";
inline constexpr std::string_view kUnknownPeer = "UNKNOWN_PEER";
inline constexpr std::string_view kRole = "ROLE";
inline constexpr std::string_view kTraceLimit = "TRACE_LIMIT";
inline constexpr std::string_view kQueuedTimeLimit = "QUEUED_TIME_LIMIT";
inline constexpr std::string_view kTuneLimit = "TUNE_LIMIT";
inline constexpr std::string_view kInvalid = "INVALID";
}  // namespace reason

// `status` with its reason; the first reason given stays.
absl::Status WithReason(absl::Status status, std::string_view reason);

// The reason, or a default for the code ("INVALID", "NOT_FOUND", ...). Empty for OK.
std::string ReasonOf(const absl::Status& status);

}  // namespace gemmd::server
