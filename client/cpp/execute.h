// How a program is run, whether from ops or from a plan.

#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/options.h"
#include "client/cpp/result.h"
#include "client/cpp/types.h"

namespace gemmd::client {

struct ExecuteOptions {
  Priority priority = Priority::kNormal;
  ReportLevel report = ReportLevel::kFull;
  // Up to 32 bytes that make a second try return the first one's result; with another program they
  // are INVALID_ARGUMENT, OP_ID_REUSED. Empty: 16 random bytes, drawn for each call and kept across
  // its retries.
  std::string op_id = {};
  // Kernels are chosen by what came with the server's version alone: the same ops on the same data
  // and model of device give the same bits before and after any tuning. A plan has its own.
  bool deterministic = false;
  // What the data of Writes and Reads takes. kAuto: from 64 KiB on the memory that a session shares
  // with a daemon on its host (1 to 16 MiB, made by the first run that can use it), unless op_id is
  // set or the session's programs cannot reach it; the report then names the kernels of Copy ops. A
  // Result keeps its outputs there. So do the runs of a plan that bring its inputs or have none.
  // kShm fails rather than go by gRPC. Queues: by gRPC.
  Route route = Route::kAuto;
  CallOptions call = {};
};

using ExecuteCallback = std::function<void(absl::StatusOr<Result>)>;

}  // namespace gemmd::client
