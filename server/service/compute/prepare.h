// From a request to a run: claims the session, resolves handles, converts, validates, compiles.
// Nothing is queued yet.

#pragma once

#include "absl/status/statusor.h"
#include "server/engine/server_state.h"
#include "server/service/compute/execute_view.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/inline_data.h"
#include "server/service/wire/request_pool.h"

namespace gemmd::server {

// `taken` is the inline data that was taken out of what is to run, null when it is still there.
// kShipped: by what came with the build alone, whatever was measured since.
enum class Kernels { kBest, kShipped };
absl::StatusOr<RunRequest> PrepareOps(SessionUse use, const OpList& ops,
                                      std::shared_ptr<InlineData> taken = nullptr,
                                      Kernels kernels = Kernels::kBest);
absl::StatusOr<RunRequest> PreparePlan(SessionUse use, const v1::PlanRun& run,
                                       std::shared_ptr<InlineData> taken = nullptr);
// Ops as bytes, which are read only when the session has not sent them lately.
absl::StatusOr<RunRequest> PrepareView(SessionUse use, const ExecuteView& view,
                                       std::shared_ptr<InlineData> taken,
                                       RequestPool<v1::ExecuteRequest>& pool);
// The same of ops that were read: their bytes are made anew, which takes a tenth of compiling them.
absl::StatusOr<RunRequest> PrepareComingAgain(SessionUse use, const OpList& ops);
absl::StatusOr<std::shared_ptr<const Plan>> PrepareNewPlan(Session& session,
                                                           const v1::CreatePlanRequest& request);
// Counts a run that was accepted: inline bytes in and out, and plans.
void CountRun(ServerState& state, const RunRequest& run);

// The op_id of a request and a digest of what it asks to run: its ops, or its plan with rebindings
// and inputs. Priority and report may differ between tries. INVALID_ARGUMENT over 32 bytes.
absl::StatusOr<OpId> OpIdOf(const v1::ExecuteRequest& request, const InlineData* taken);
absl::StatusOr<OpId> OpIdOf(const ExecuteView& view, const InlineData* taken);
absl::StatusOr<OpId> OpIdOf(const v1::RunPlanRequest& request, const InlineData* taken);

}  // namespace gemmd::server
