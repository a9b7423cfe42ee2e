// What is behind a Plan.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/internal/connect/session_core.h"
#include "client/cpp/ops.h"
#include "client/cpp/plan.h"
#include "client/cpp/types.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {

struct Plan::State {
  std::shared_ptr<SessionCore> session;  // shared: a plan may outlive the Session object
  Handle id;
  v1::Plan info;
  std::shared_ptr<const OpList> ops;  // shared with runs under way; null without inline data
};

absl::StatusOr<Plan> MakePlan(std::shared_ptr<SessionCore> session, const OpList& ops,
                              const PlanOptions& options);

}  // namespace gemmd::client
