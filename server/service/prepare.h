// From a request to a run: claims the session, resolves handles, converts, validates, compiles.
// Nothing is queued yet.

#ifndef GEMMD_SERVER_SERVICE_PREPARE_H_
#define GEMMD_SERVER_SERVICE_PREPARE_H_

#include "absl/status/statusor.h"
#include "server/engine/server_state.h"
#include "server/service/convert.h"

namespace gemmd::server {

absl::StatusOr<RunRequest> PrepareOps(SessionUse use, const OpList& ops);
absl::StatusOr<RunRequest> PreparePlan(SessionUse use, const v1::PlanRun& run);
absl::StatusOr<std::shared_ptr<const Plan>> PrepareNewPlan(Session& session,
                                                           const v1::CreatePlanRequest& request);
// Counts a run that was accepted: inline bytes in and out, and plans.
void CountRun(ServerState& state, const RunRequest& run);

// INVALID_ARGUMENT for an op_id over 32 bytes.
absl::Status CheckOpId(const std::string& op_id);

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_PREPARE_H_
