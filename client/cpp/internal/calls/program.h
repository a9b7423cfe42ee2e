// Running an encoded program: the one path of Session::Execute and Plan::Run, with and without
// waiting.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/execute.h"
#include "client/cpp/ops.h"
#include "client/cpp/plan.h"
#include "client/cpp/types.h"

namespace gemmd::client {

class SessionCore;

// Outputs that the answer does not carry.
struct OutputsElsewhere {
  std::vector<absl::string_view> outputs;  // one for each of the caller's Reads
  std::shared_ptr<const void> memory;      // what they point into
};

// A request on its way: which method, and its bytes.
struct Program {
  const char* method;
  grpc::ByteBuffer request;
  std::shared_ptr<const OutputsElsewhere> elsewhere = nullptr;
};

// The PlanRun message of `args`, tagged as field `field`. `inline_at`: that field of it, encoded.
std::string EncodePlanRun(int field, const Handle& plan, const PlanArgs& args,
                          absl::string_view inline_at = {});

Program ExecuteProgram(const SessionCore& session, const OpList& ops,
                       const ExecuteOptions& options);
// `ops` encoded.
Program ExecuteProgram(const SessionCore& session, absl::string_view ops,
                       const ExecuteOptions& options);
Program RunPlanProgram(const SessionCore& session, const Handle& plan, const PlanArgs& args,
                       const ExecuteOptions& options, absl::string_view inline_at = {});

// Retries share the request, and with it the op_id: the program runs once.
absl::StatusOr<Result> Run(const SessionCore& session, const Program& program,
                           const CallOptions& options);
// The same; keeps the session's state until `done` has run.
void RunAsync(std::shared_ptr<SessionCore> session, Program program, const CallOptions& options,
              ExecuteCallback done);

}  // namespace gemmd::client
