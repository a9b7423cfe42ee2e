#include "server/engine/observe/audit.h"

#include <utility>

namespace gemmd::server {

void Audit::Admin(const AuditEvent& event, std::string_view code) {
  // What was allowed is no reason to wake anybody.
  log_.Always(LogLevel::kInfo, "audit",
              {{"decision", "allowed"},
               {"method", event.method},
               {"principal", event.principal},
               {"role", event.role},
               {"tenant", event.tenant},
               {"peer", event.peer},
               {"request", event.request},
               {"code", code}});
}

void Audit::Refused(const AuditEvent& event, std::string_view reason) {
  int64_t left_out = 0;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    if (now - second_ >= absl::Seconds(1)) {
      second_ = now;
      lines_ = 0;
    }
    if (lines_ >= kRefusalsPerSecond) {
      ++left_out_;
      return;
    }
    ++lines_;
    left_out = std::exchange(left_out_, 0);
  }
  log_.Always(LogLevel::kWarning, "audit",
              {{"decision", "refused"},
               {"reason", reason},
               {"method", event.method},
               {"principal", event.principal},
               {"role", event.role},
               {"tenant", event.tenant},
               {"peer", event.peer},
               {"request", event.request},
               {"left_out", left_out}});
}

}  // namespace gemmd::server
