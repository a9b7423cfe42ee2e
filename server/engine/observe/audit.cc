#include "server/engine/observe/audit.h"

#include <optional>
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
  const std::optional<int64_t> left_out = refusals_.Take(clock_.Now());
  if (!left_out) return;
  Write(LogLevel::kWarning, {{"decision", "refused"}, {"reason", reason}}, event,
        {"left_out", *left_out});
}

}  // namespace gemmd::server
