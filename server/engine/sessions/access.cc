#include "server/engine/sessions/access.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "server/engine/reason.h"
#include "server/engine/sessions/token_file.h"
#include "server/engine/text.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// How late a new token file is seen. The file is read whole: a Kubernetes Secret changes by
// swapping a link, which a file's time of change does not tell.
constexpr absl::Duration kPollEvery = absl::Seconds(1);

absl::Status Refused(std::string_view reason, std::string message) {
  return WithReason(absl::UnauthenticatedError(std::move(message)), reason);
}

absl::StatusOr<std::string> ReadTokens(const AuthConfig& config) {
  if (config.token_file.empty()) return "";
  auto text = ReadTokenFile(config.token_file);
  if (text.ok()) return text;
  return absl::Status(text.status().code(), absl::StrCat("auth.token_file: ", config.token_file,
                                                         ": ", text.status().message()));
}

absl::StatusOr<std::vector<TokenEntry>> ParseTokens(const AuthConfig& config, std::string_view text,
                                                    const std::vector<std::string>& tenants) {
  auto entries = ParseTokenFile(text, tenants);
  if (entries.ok()) return entries;
  return absl::InvalidArgumentError(
      absl::StrCat("auth.token_file: ", config.token_file, ": ", entries.status().message()));
}

}  // namespace

std::string_view Name(Role role) {
  switch (role) {
    case Role::kUser:
      return "user";
    case Role::kObserver:
      return "observer";
    case Role::kAdmin:
      return "admin";
  }
  return "user";
}

struct Access::Rules {
  struct Token {
    PrincipalRef principal;
    absl::Time expires;
  };
  absl::flat_hash_map<TokenHash, Token> tokens;
  absl::flat_hash_map<std::string, PrincipalRef> certificates;
  absl::flat_hash_map<int64_t, PrincipalRef> uids;
};

Access::Access(const TenantDirectory& tenants, const Clock& clock, Log& log, Metrics& metrics)
    : tenants_(tenants), clock_(clock), log_(log), metrics_(metrics) {}

absl::StatusOr<std::unique_ptr<Access>> Access::Create(const AuthConfig& config,
                                                       const TenantDirectory& tenants,
                                                       const Clock& clock, Log& log,
                                                       Metrics& metrics) {
  std::unique_ptr<Access> access(new Access(tenants, clock, log, metrics));
  absl::MutexLock lock(&access->load_mutex_);
  GEMMD_RETURN_IF_ERROR(access->Load(config));
  return access;
}

absl::StatusOr<std::shared_ptr<const Access::Rules>> Access::Build(const AuthConfig& config,
                                                                   std::string_view text) const {
  std::vector<std::string> names;
  for (const Tenant* tenant : tenants_.All()) names.push_back(tenant->name());
  GEMMD_ASSIGN_OR_RETURN(auto entries, ParseTokens(config, text, names));
  const auto principal = [&](std::string name, const std::string& tenant, Role role) {
    return std::make_shared<const Principal>(
        Principal{std::move(name), tenants_.Find(tenant), role});
  };
  auto rules = std::make_shared<Rules>();
  for (const TokenEntry& entry : entries) {
    rules->tokens.emplace(entry.hash, Rules::Token{principal(absl::StrCat("token:", entry.name),
                                                             entry.tenant, entry.role),
                                                   entry.expires});
  }
  for (const PrincipalConfig& rule : config.certificates) {
    rules->certificates.emplace(
        rule.name, principal(absl::StrCat("certificate:", rule.name), rule.tenant, rule.role));
  }
  for (const PrincipalConfig& rule : config.unix_peers) {
    rules->uids.emplace(rule.uid,
                        principal(absl::StrCat("uid:", rule.uid), rule.tenant, rule.role));
  }
  return rules;
}

// Takes config and file, or changes nothing.
absl::Status Access::Load(const AuthConfig& config) {
  GEMMD_ASSIGN_OR_RETURN(auto text, ReadTokens(config));
  GEMMD_ASSIGN_OR_RETURN(auto rules, Build(config, text));
  metrics_.Tokens().Set(static_cast<double>(rules->tokens.size()));
  config_ = config;
  token_text_ = std::move(text);
  absl::MutexLock lock(&mutex_);
  rules_ = std::move(rules);
  return absl::OkStatus();
}

absl::Status Access::Check(const AuthConfig& config, absl::Span<const TenantConfig> tenants) {
  GEMMD_ASSIGN_OR_RETURN(auto text, ReadTokens(config));
  std::vector<std::string> names;
  for (const TenantConfig& tenant : tenants) names.push_back(tenant.name);
  return ParseTokens(config, text, names).status();
}

void Access::NoteLoad(const absl::Status& loaded) {
  metrics_.TokenFileLoads(loaded.ok() ? "ok" : "invalid").Increment();
  if (loaded.ok()) {
    log_.Info("tokens_loaded", {{"tokens", metrics_.Tokens().Value()}});
  } else {
    log_.Error("tokens_invalid", {{"message", std::string(loaded.message())}});
  }
}

void Access::Reconfigure(const AuthConfig& config) {
  absl::MutexLock lock(&load_mutex_);
  const absl::Status loaded = Load(config);
  if (!config.token_file.empty() || !loaded.ok()) NoteLoad(loaded);
}

void Access::Poll() {
  absl::MutexLock lock(&load_mutex_);
  const absl::Time now = clock_.Now();
  // Further ahead than it can be it lies once the clock was set back: a token that was taken out
  // would live on by as much.
  const bool due = now >= next_poll_ || next_poll_ - now > kPollEvery;
  if (config_.token_file.empty() || !due) return;
  next_poll_ = now + kPollEvery;
  auto text = ReadTokens(config_);
  // What cannot be read is noted once, as a text that no file has.
  const std::string read = text.ok() ? *text : std::string(1, '\0');
  if (read == token_text_) return;
  const AuthConfig config = config_;
  const absl::Status loaded = text.ok() ? Load(config) : text.status();
  token_text_ = read;
  NoteLoad(loaded);
}

std::shared_ptr<const Access::Rules> Access::rules() const {
  absl::MutexLock lock(&mutex_);
  return rules_;
}

absl::StatusOr<PrincipalRef> Access::ByToken(std::string_view token) const {
  const auto rules = this->rules();
  const auto found = token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes
                         ? rules->tokens.end()
                         : rules->tokens.find(HashToken(token));
  if (found == rules->tokens.end()) {
    return Refused(reason::kBadToken,
                   "the bearer token is not one of the server's; ask its operator for one");
  }
  if (clock_.Now() >= found->second.expires) {
    return Refused(reason::kExpiredToken,
                   absl::StrCat("the bearer token expired at ",
                                absl::FormatTime(found->second.expires, absl::UTCTimeZone()),
                                "; ask the server's operator for a new one"));
  }
  return found->second.principal;
}

absl::StatusOr<PrincipalRef> Access::ByCertificate(absl::Span<const std::string> names) const {
  const auto rules = this->rules();
  for (const std::string& name : names) {
    const auto found = rules->certificates.find(name);
    if (found != rules->certificates.end()) return found->second;
  }
  return Refused(reason::kUnknownCertificate,
                 "no rule of the server names the client certificate's subject; have auth."
                 "certificates name it");
}

PrincipalRef Access::ByUid(uint32_t uid) const {
  const auto rules = this->rules();
  const auto found = rules->uids.find(uid);
  return found == rules->uids.end() ? nullptr : found->second;
}

}  // namespace gemmd::server
