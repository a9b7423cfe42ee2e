// Access: who a credential stands for. It knows the config's rules and the token file, which it
// reads again when that changes; what a caller may then do is decided by its role.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "server/engine/clock.h"
#include "server/engine/config.h"
#include "server/engine/observe/log.h"
#include "server/engine/observe/metrics.h"
#include "server/engine/sessions/tenant.h"

namespace gemmd::server {

std::string_view Name(Role role);  // "user", "observer", "admin"

// Whoever calls. Immutable; shared by the calls it makes and by the rules it comes from.
struct Principal {
  std::string name;  // for logs: "token:ci", "certificate:spiffe://...", "uid:1000", "anyone"
  Tenant* tenant = nullptr;
  Role role = Role::kUser;
};
using PrincipalRef = std::shared_ptr<const Principal>;

// Thread-safe. What it answers holds for one call: rules change.
class Access {
 public:
  // INVALID_ARGUMENT or NOT_FOUND names the token file and what is wrong with it. All references
  // outlive it.
  static absl::StatusOr<std::unique_ptr<Access>> Create(const AuthConfig& config,
                                                        const TenantDirectory& tenants,
                                                        const Clock& clock, Log& log,
                                                        Metrics& metrics);

  // UNAUTHENTICATED with reason BAD_TOKEN, EXPIRED_TOKEN or UNKNOWN_CERTIFICATE.
  absl::StatusOr<PrincipalRef> ByToken(std::string_view token) const;
  // By the first of the names that has a rule.
  absl::StatusOr<PrincipalRef> ByCertificate(absl::Span<const std::string> names) const;
  // Null when there is no rule for it.
  PrincipalRef ByUid(uint32_t uid) const;

  // Whether a config could take the place of this one: reads its token file.
  static absl::Status Check(const AuthConfig& config, absl::Span<const TenantConfig> tenants);
  // After the tenants' own Reconfigure. A token file that is wrong leaves the old tokens.
  void Reconfigure(const AuthConfig& config);
  // Reads the token file if it has changed. To be called every now and then.
  void Poll();

 private:
  struct Rules;
  Access(const TenantDirectory& tenants, const Clock& clock, Log& log, Metrics& metrics);
  std::shared_ptr<const Rules> rules() const;
  // Builds rules of `config` and the token file's text.
  absl::StatusOr<std::shared_ptr<const Rules>> Build(const AuthConfig& config,
                                                     std::string_view tokens) const;
  absl::Status Load(const AuthConfig& config);
  void NoteLoad(const absl::Status& loaded);

  const TenantDirectory& tenants_;
  const Clock& clock_;
  Log& log_;
  Metrics& metrics_;
  absl::Mutex load_mutex_;  // one load at a time
  AuthConfig config_ ABSL_GUARDED_BY(load_mutex_);
  std::string token_text_ ABSL_GUARDED_BY(load_mutex_);  // as last read, right or wrong
  absl::Time next_poll_ ABSL_GUARDED_BY(load_mutex_) = absl::InfinitePast();
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Rules> rules_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
