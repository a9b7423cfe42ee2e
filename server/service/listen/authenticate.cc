#include "server/service/listen/authenticate.h"

#include <grpc/grpc_security_constants.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/engine/reason.h"

namespace gemmd::server {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr absl::string_view kBearer = "Bearer ";

PrincipalRef MakePrincipal(std::string name, Tenant& tenant, Role role) {
  return std::make_shared<const Principal>(Principal{std::move(name), &tenant, role});
}

// The names of a verified client certificate, the most telling first; none without one.
std::vector<std::string> CertificateNames(const grpc::ServerContextBase& context) {
  std::vector<std::string> names;
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return names;
  for (const char* property :
       {GRPC_PEER_URI_PROPERTY_NAME, GRPC_PEER_DNS_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    for (const grpc::string_ref& value : auth->FindPropertyValues(property)) {
      names.emplace_back(value.data(), value.size());
    }
  }
  return names;
}

std::optional<absl::string_view> BearerToken(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kAuthorization);
  if (found == metadata.end()) return std::nullopt;
  absl::string_view value(found->second.data(), found->second.size());
  // The scheme's case does not matter (RFC 9110, 11.1).
  if (!absl::StartsWithIgnoreCase(value, kBearer)) return std::nullopt;
  return absl::StripLeadingAsciiWhitespace(value.substr(kBearer.size()));
}

std::string Wanted(const Credentials& asked) {
  std::string wanted;
  const auto add = [&](bool take, const char* what) {
    if (take) absl::StrAppend(&wanted, wanted.empty() ? "" : " or ", what);
  };
  add(asked.certificate, "a client certificate");
  add(asked.token, "metadata \"authorization: Bearer <token>\"");
  add(asked.unix_peer, "a user id that auth.unix_peers knows");
  return wanted;
}

}  // namespace

Authenticator::Authenticator(const ListenerConfig& config, Tenant& tenant, const Access& access,
                             const Acceptor& acceptor)
    : asked_(config.credentials),
      access_(access),
      acceptor_(acceptor),
      own_uid_(geteuid()),
      anyone_(MakePrincipal("anyone", tenant, config.role)),
      local_root_(MakePrincipal("local", tenant, Role::kAdmin)) {}

bool Authenticator::Trusted(uint32_t uid) const { return uid == 0 || uid == own_uid_; }

PrincipalRef Authenticator::AtUnix(const grpc::ServerContextBase& context) const {
  const std::optional<UnixPeer> peer = acceptor_.Find(context.peer());
  if (!peer) return nullptr;
  if (PrincipalRef principal = access_.ByUid(peer->uid)) return principal;
  return Trusted(peer->uid) ? local_root_ : nullptr;
}

absl::StatusOr<PrincipalRef> Authenticator::Authenticate(
    const grpc::ServerContextBase& context) const {
  auto principal = Identify(context);
  if (principal.ok() && acceptor_.AwaitsAdmission()) acceptor_.NoteAdmitted(context.peer());
  return principal;
}

absl::StatusOr<PrincipalRef> Authenticator::Identify(const grpc::ServerContextBase& context) const {
  if (!asked_.any()) {
    PrincipalRef principal = AtUnix(context);
    return principal != nullptr ? principal : anyone_;
  }
  // The last one that was shown and is not good; it says more than that none was.
  absl::Status refused =
      WithReason(absl::UnauthenticatedError(absl::StrCat(
                     "the call shows no credential; this listener wants ", Wanted(asked_))),
                 reason::kNoCredentials);
  if (asked_.certificate) {
    const std::vector<std::string> names = CertificateNames(context);
    auto principal = access_.ByCertificate(names);
    if (principal.ok()) return principal;
    if (!names.empty()) refused = principal.status();
  }
  if (asked_.token) {
    if (const auto token = BearerToken(context)) {
      auto principal = access_.ByToken({token->data(), token->size()});
      if (principal.ok()) return principal;
      refused = principal.status();
    }
  }
  if (asked_.unix_peer) {
    if (PrincipalRef principal = AtUnix(context)) return principal;
    refused = WithReason(
        absl::UnauthenticatedError(absl::StrCat("no rule of the server names ", PeerName(context),
                                                "; have auth.unix_peers name it")),
        reason::kUnknownPeer);
  }
  return refused;
}

std::string Authenticator::PeerName(const grpc::ServerContextBase& context) const {
  std::string name = context.peer();
  const std::optional<UnixPeer> peer = acceptor_.Find(name);
  if (!peer) return name;
  return absl::StrCat("unix:uid=", peer->uid, ",pid=", peer->pid);
}

}  // namespace gemmd::server
