// Which shapes a Tune measures: those that the request lists, those that were multiplied most, and
// those of published weights.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "gemmd/v1/admin_service.pb.h"
#include "kernels/tuner.h"
#include "server/engine/server_state.h"
#include "server/engine/tuning/device_tuner.h"

namespace gemmd::server {

// Each once. INVALID_ARGUMENT, with value, limit and remedy, for extents out of range, too many
// shapes, or none.
absl::StatusOr<std::vector<kernels::TuneShape>> TuneShapesOf(const v1::TuneRequest& request,
                                                             ServerState& state,
                                                             const DeviceTuner& tuner);

}  // namespace gemmd::server
