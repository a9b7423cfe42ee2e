#include "server/engine/armed/armed_plans.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmd::server {
namespace {

constexpr int kMostSlots = GEMMD_ARMED_MAX_SLOTS;

absl::StatusOr<std::shared_ptr<ArmedRegion>> Fitting(std::shared_ptr<ArmedRegion> region,
                                                     int slots) {
  if (slots <= region->slots()) return region;
  return absl::FailedPreconditionError(
      absl::StrCat("the session's region has ", region->slots(), " slots, asked for ", slots,
                   "; it is made once: open another session and ask for more there first"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<ArmedRegion>> ArmedPlans::RegionOf(Session& session, int slots) {
  if (slots < 0 || slots > kMostSlots) {
    return absl::InvalidArgumentError(absl::StrCat("slots=", slots, " is outside 0 to ", kMostSlots,
                                                   "; ask for at most those a session"));
  }
  if (auto region = session.armed()) return Fitting(std::move(region), slots);
  auto made = ArmedRegion::Create(session, *session.options().device,
                                  slots == 0 ? ArmedRegion::kDefaultSlots : slots, environment_);
  if (!made.ok()) return made.status();
  if (absl::Status set = session.SetArmed(*made); !set.ok()) {
    if (auto region = session.armed()) return Fitting(std::move(region), slots);
    return set;
  }
  poller_.Add(*made);
  return made;
}

}  // namespace gemmd::server
