// Audit: the log's record of who was refused and what admins did. Admin calls are all there;
// refusals are as many as a second has room for, so that whoever is refused cannot flood the log,
// and the next line tells how many were left out (the metric gemmd_auth_refusals_total has all).

#pragma once

#include <string_view>
#include <vector>

#include "server/engine/clock.h"
#include "server/engine/observe/line_budget.h"
#include "server/engine/observe/log.h"

namespace gemmd::server {

struct AuditEvent {
  std::string_view method;
  std::string_view principal;  // empty: nobody known
  std::string_view role;
  std::string_view tenant;
  std::string_view peer;     // "ipv4:10.0.0.7:41234", "unix:uid=1000"
  std::string_view request;  // the request's id
};

// Thread-safe.
class Audit {
 public:
  static constexpr int kRefusalsPerSecond = 20;

  Audit(const Clock& clock, Log& log) : clock_(clock), log_(log) {}
  // An admin's call, at INFO; `code` is how it ended.
  void Admin(const AuditEvent& event, std::string_view code);
  // At WARNING. Both are written whatever level the log has.
  void Refused(const AuditEvent& event, std::string_view reason);

 private:
  // One line: `fields`, who called what, and `last`.
  void Write(LogLevel level, std::vector<LogField> fields, const AuditEvent& event,
             const LogField& last);

  const Clock& clock_;
  Log& log_;
  LineBudget refusals_{kRefusalsPerSecond};
};

}  // namespace gemmd::server
