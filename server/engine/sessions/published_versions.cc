// What a name without a version means, and to whom; and who holds what.

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/engine/reason.h"
#include "server/engine/sessions/published.h"
#include "server/engine/text.h"
#include "status/propagate.h"

namespace gemmd::server {

PublishedClaim::~PublishedClaim() {
  if (registry_ != nullptr) registry_->Release(*this);
}

bool PublishedBuffers::Pins::HoldsBelow(std::string_view base) const {
  if (plain.contains(std::string(base))) return true;
  const std::string folder = absl::StrCat(Text(base), "/");
  auto it = plain.lower_bound(folder);
  return it != plain.end() && it->first.starts_with(folder);
}

PublishedBuffers::Resolved PublishedBuffers::Resolve(const Tenant& tenant, std::string_view name,
                                                     uint64_t session) const {
  auto held = pins_.find(session);
  const Pins* pins = held != pins_.end() ? &held->second : nullptr;
  for (std::string_view base : BasesOf(name)) {
    const std::string_view rest = name.substr(base.size());
    if (pins != nullptr) {
      auto pin = pins->versions.find(std::string(base));
      if (pin != pins->versions.end()) {
        return {VersionedName(base, pin->second.version, rest), PublishedClaim::Via::kVersion};
      }
      if (pins->HoldsBelow(base)) continue;  // it began before there were versions
    }
    auto it = versions_.find(Key(tenant.index(), std::string(base)));
    if (it == versions_.end() || it->second.current == 0) continue;
    return {VersionedName(base, it->second.current, rest), PublishedClaim::Via::kVersion};
  }
  return {std::string(name), PublishedClaim::Via::kPlain};
}

absl::Status PublishedBuffers::NoName(const Tenant& tenant, std::string_view name,
                                      std::string_view resolved) const {
  std::string why = "; publish one, or check the spelling";
  if (resolved != name) {
    why = absl::StrCat(", which is ", Text(resolved),
                       " to this session; 'gemmctl published' lists "
                       "the names of each version");
  } else if (name.find('@') == name.npos) {
    for (std::string_view base : BasesOf(name)) {
      auto it = versions_.find(Key(tenant.index(), std::string(base)));
      if (it == versions_.end()) continue;
      why = absl::StrCat("; ", Text(base), " has versions ",
                         absl::StrJoin(it->second.all, ", ",
                                       [](std::string* out, const auto& version) {
                                         absl::StrAppend(out, version.first);
                                       }),
                         it->second.current == 0
                             ? absl::StrCat(" and none is current: SwitchVersion makes one")
                             : absl::StrCat(", ", it->second.current, " is current: say which"));
      break;
    }
  }
  return WithReason(
      absl::NotFoundError(absl::StrCat("no buffer is published as ", Text(name), why)),
      reason::kNameUnknown);
}

absl::StatusOr<PublishedBuffers::Switched> PublishedBuffers::Switch(const Tenant& tenant,
                                                                    std::string_view base,
                                                                    int64_t version) {
  GEMMD_ASSIGN_OR_RETURN(WeightName parsed, ParseWeightName(base));
  if (parsed.versioned()) {
    return absl::InvalidArgumentError(absl::StrCat("name ", Text(base),
                                                   " has a version of its own; give ",
                                                   Text(parsed.base), " and the version apart"));
  }
  GEMMD_RETURN_IF_ERROR(CheckVersion(version));
  absl::MutexLock lock(&mutex_);
  auto it = versions_.find(Key(tenant.index(), std::string(base)));
  int64_t names = 0;
  if (it != versions_.end()) {
    auto found = it->second.all.find(version);
    if (found != it->second.all.end()) names = found->second.names;
  }
  if (names == 0) {
    return WithReason(
        absl::NotFoundError(absl::StrCat("nothing is published as ", VersionedName(base, version),
                                         "; publish its buffers first, and then switch")),
        reason::kNameUnknown);
  }
  return Switched{.previous = std::exchange(it->second.current, version), .names = names};
}

PublishedClaim PublishedBuffers::Claim(std::shared_ptr<Entry> entry, uint64_t session,
                                       PublishedClaim::Via via) {
  entry->last_use = clock_.Now();
  ++entry->holders;
  if (Version* version = VersionOf(*entry)) ++version->holders;
  if (via == PublishedClaim::Via::kVersion) {
    Pins::Pin& pin = pins_[session].versions[entry->base];
    pin.version = entry->version;
    ++pin.handles;
  } else if (via == PublishedClaim::Via::kPlain) {
    ++pins_[session].plain[entry->name];
  }
  PublishedClaim claim;
  claim.registry_ = this;
  claim.entry_ = std::move(entry);
  claim.session_ = session;
  claim.via_ = via;
  return claim;
}

void PublishedBuffers::Release(PublishedClaim& claim) {
  absl::MutexLock lock(&mutex_);
  Entry& entry = *claim.entry_;
  entry.last_use = clock_.Now();
  --entry.holders;
  if (Version* version = VersionOf(entry)) {
    version->last_use = entry.last_use;
    if (--version->holders == 0) version->lost_names = false;
    ForgetVersionIfGone(entry);
  }
  auto it = pins_.find(claim.session_);
  if (it == pins_.end()) return;
  Pins& pins = it->second;
  if (claim.via_ == PublishedClaim::Via::kVersion) {
    auto pin = pins.versions.find(entry.base);
    if (pin != pins.versions.end() && --pin->second.handles == 0) pins.versions.erase(pin);
  } else if (claim.via_ == PublishedClaim::Via::kPlain) {
    auto plain = pins.plain.find(entry.name);
    if (plain != pins.plain.end() && --plain->second == 0) pins.plain.erase(plain);
  }
  if (pins.versions.empty() && pins.plain.empty()) pins_.erase(it);
}

PublishedBuffers::Version* PublishedBuffers::VersionOf(const Entry& entry) {
  return const_cast<Version*>(std::as_const(*this).VersionOf(entry));
}

const PublishedBuffers::Version* PublishedBuffers::VersionOf(const Entry& entry) const {
  if (entry.version == 0) return nullptr;
  auto it = versions_.find(Key(entry.tenant, entry.base));
  if (it == versions_.end()) return nullptr;
  auto version = it->second.all.find(entry.version);
  return version == it->second.all.end() ? nullptr : &version->second;
}

void PublishedBuffers::ForgetVersionIfGone(const Entry& entry) {
  auto it = versions_.find(Key(entry.tenant, entry.base));
  auto version = it->second.all.find(entry.version);
  if (version->second.names > 0) return;
  if (it->second.current == entry.version) it->second.current = 0;
  if (version->second.holders > 0) return;  // its number is not free yet
  it->second.all.erase(version);
  if (it->second.all.empty()) versions_.erase(it);
}

}  // namespace gemmd::server
