#include "server/engine/observe/audit.h"

#include <utility>
#include <vector>

namespace gemmd::server {

void Audit::Write(LogLevel level, std::vector<LogField> fields, const AuditEvent& event,
                  const LogField& last) {
  fields.insert(fields.end(), {{"method", event.method},
                               {"principal", event.principal},
                               {"role", event.role},
                               {"tenant", event.tenant},
                               {"peer", event.peer},
                               {"request", event.request},
                               last});
  log_.Always(level, "audit", fields);
}

void Audit::Admin(const AuditEvent& event, std::string_view code) {
  // What was allowed is no reason to wake anybody.
  Write(LogLevel::kInfo, {{"decision", "allowed"}}, event, {"code", code});
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
  Write(LogLevel::kWarning, {{"decision", "refused"}, {"reason", reason}}, event,
        {"left_out", left_out});
}

}  // namespace gemmd::server
