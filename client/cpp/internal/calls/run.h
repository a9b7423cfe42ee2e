// Running an OpList or a plan: inline data goes through memory shared with the daemon where that is
// worth it and there is some, else in the messages.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/execute.h"
#include "client/cpp/ops.h"
#include "client/cpp/plan.h"

namespace gemmd::client {

class SessionCore;

absl::StatusOr<Result> RunOps(const SessionCore& session, const OpList& ops,
                              const ExecuteOptions& options);
void RunOpsAsync(std::shared_ptr<SessionCore> session, const OpList& ops,
                 const ExecuteOptions& options, ExecuteCallback done);
absl::StatusOr<Result> RunPlan(const Plan::State& plan, const PlanArgs& args,
                               const ExecuteOptions& options);
void RunPlanAsync(const Plan::State& plan, const PlanArgs& args, const ExecuteOptions& options,
                  ExecuteCallback done);

}  // namespace gemmd::client
