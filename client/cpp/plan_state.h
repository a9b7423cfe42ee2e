// What is behind a Plan.

#ifndef GEMMD_CLIENT_CPP_PLAN_STATE_H_
#define GEMMD_CLIENT_CPP_PLAN_STATE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/cpp/plan.h"
#include "client/cpp/plan_twins.h"
#include "client/cpp/session_core.h"
#include "client/cpp/types.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {

struct Plan::State {
  std::shared_ptr<SessionCore> session;  // shared: a plan may outlive the Session object
  Handle id;
  v1::Plan info;
  std::shared_ptr<PlanTwins> twins;  // shared with runs under way; none without inline data

  void DropTwins() const;
};

// CreatePlan, of ops that are encoded.
absl::StatusOr<v1::Plan> CreatePlanOf(const SessionCore& session, absl::string_view ops,
                                      const PlanOptions& options);

absl::StatusOr<Plan> MakePlan(std::shared_ptr<SessionCore> session, const OpList& ops,
                              const PlanOptions& options);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CPP_PLAN_STATE_H_
