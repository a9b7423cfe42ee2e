#include "server/engine/sessions/published.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr absl::Duration kLeastTtl = absl::Seconds(1);
constexpr absl::Duration kMostTtl = absl::Hours(24 * 3660);
constexpr absl::Duration kExpireEvery = absl::Milliseconds(250);
constexpr size_t kHashBytes = 32;

absl::Status CheckOptions(const PublishOptions& options) {
  if (!options.content_hash.empty() && options.content_hash.size() != kHashBytes) {
    return absl::InvalidArgumentError(absl::StrCat("content_hash has ", options.content_hash.size(),
                                                   " bytes; give none or ", kHashBytes));
  }
  if (options.ttl && (*options.ttl < kLeastTtl || *options.ttl > kMostTtl)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ttl=", absl::FormatDuration(*options.ttl), " is outside ", absl::FormatDuration(kLeastTtl),
        " to ", absl::FormatDuration(kMostTtl), "; leave it out for a name that stays"));
  }
  return absl::OkStatus();
}

absl::Status CheckPublishable(const BufferRef& ref) {
  if (ref.buffer->upload().active) {
    return WithReason(absl::FailedPreconditionError(
                          "an upload to this buffer is under way; publish it when that is done"),
                      reason::kUploadBusy);
  }
  if (ref.buffer->spec().kind == kernels::MemoryKind::kDeviceImported) {
    return WithReason(
        absl::FailedPreconditionError(
            "the buffer is imported: its memory goes with the process that owns it, a name would "
            "outlive that; copy it into a buffer of the server's and publish that"),
        reason::kNotShared);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PublishedBuffers::CheckFree(const Tenant& tenant, const WeightName& name,
                                         const BufferRef& ref) const {
  auto named = by_buffer_.find(ref.buffer.get());
  if (named != by_buffer_.end() || ref.found) {
    return WithReason(
        absl::FailedPreconditionError(
            absl::StrCat("this buffer is published already",
                         named != by_buffer_.end() ? absl::StrCat(" as ", named->second->name) : "",
                         "; unpublish it first")),
        reason::kNameTaken);
  }
  if (!name.versioned()) {
    for (std::string_view base : BasesOf(name.base)) {
      auto it = versions_.find(Key(tenant.index(), std::string(base)));
      if (it == versions_.end() || it->second.current == 0) continue;
      return WithReason(absl::FailedPreconditionError(absl::StrCat(
                            Text(base), " has versions, ", it->second.current,
                            " is current: nobody would find ", Text(name.base), "; publish it as ",
                            VersionedName(base, it->second.current, name.base.substr(base.size())),
                            " or of a new version")),
                        reason::kVersioned);
    }
    return absl::OkStatus();
  }
  auto it = versions_.find(Key(tenant.index(), std::string(name.base)));
  if (it == versions_.end()) return absl::OkStatus();
  auto version = it->second.all.find(name.version);
  if (version == it->second.all.end() || !version->second.lost_names) return absl::OkStatus();
  return WithReason(absl::FailedPreconditionError(absl::StrCat(
                        VersionedName(name.base, name.version),
                        " has lost names while sessions hold ", version->second.holders,
                        " buffers of it, and they would mix the old with the new; take "
                        "another version")),
                    reason::kHeld);
}

absl::StatusOr<PublishedClaim> PublishedBuffers::Publish(const Tenant& tenant,
                                                         std::string_view name,
                                                         const BufferRef& ref,
                                                         PublishOptions options) {
  GEMMD_ASSIGN_OR_RETURN(WeightName parsed, ParseWeightName(name));
  GEMMD_RETURN_IF_ERROR(CheckOptions(options));
  GEMMD_RETURN_IF_ERROR(CheckPublishable(ref));
  absl::MutexLock lock(&mutex_);
  GEMMD_RETURN_IF_ERROR(CheckFree(tenant, parsed, ref));
  // Shared with claims, which outlive the name.
  auto entry = std::make_shared<Entry>();
  auto [it, fresh] = by_name_.try_emplace(Key(tenant.index(), std::string(name)), entry);
  if (!fresh) {
    return WithReason(
        absl::AlreadyExistsError(absl::StrCat("a buffer is published as ", Text(name),
                                              "; unpublish it or choose another name")),
        reason::kNameTaken);
  }
  entry->tenant = tenant.index();
  entry->name = std::string(name);
  if (parsed.versioned()) entry->base = std::string(parsed.base);
  entry->version = parsed.version;
  entry->buffer = ref.buffer;
  entry->owner = std::move(options.owner);
  entry->content_hash = std::move(options.content_hash);
  entry->ttl = options.ttl;
  entry->published = entry->last_use = clock_.Now();
  if (entry->ttl) ++with_ttl_;
  if (parsed.versioned()) {
    ++versions_[Key(tenant.index(), entry->base)].all[entry->version].names;
  }
  by_buffer_.emplace(ref.buffer.get(), entry);
  ref.buffer->MarkPublished();
  return Claim(std::move(entry), options.session,
               parsed.versioned() ? PublishedClaim::Via::kExact : PublishedClaim::Via::kPlain);
}

absl::StatusOr<PublishedBuffers::Found> PublishedBuffers::Find(const Tenant& tenant,
                                                               std::string_view name,
                                                               uint64_t session) {
  GEMMD_ASSIGN_OR_RETURN(WeightName parsed, ParseWeightName(name));
  absl::MutexLock lock(&mutex_);
  const Resolved resolved = parsed.versioned()
                                ? Resolved{std::string(name), PublishedClaim::Via::kExact}
                                : Resolve(tenant, name, session);
  auto it = by_name_.find(Key(tenant.index(), resolved.name));
  if (it == by_name_.end()) return NoName(tenant, name, resolved.name);
  BufferLease buffer = it->second->buffer;
  return Found{std::move(buffer), Claim(it->second, session, resolved.via)};
}

absl::Status PublishedBuffers::Unpublish(const Tenant& tenant, std::string_view name,
                                         bool unless_held) {
  GEMMD_RETURN_IF_ERROR(ParseWeightName(name).status());
  BufferLease released;  // freed after the lock is let go
  absl::MutexLock lock(&mutex_);
  auto it = by_name_.find(Key(tenant.index(), std::string(name)));
  if (it == by_name_.end()) return NoName(tenant, name, name);
  const std::shared_ptr<Entry> entry = it->second;
  const Version* version = VersionOf(*entry);
  const int64_t holders = version != nullptr ? version->holders : entry->holders;
  if (unless_held && holders > 0) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            "sessions hold ", holders, version != nullptr ? " handles on version " : " handles on ",
            version != nullptr ? VersionedName(entry->base, entry->version) : Text(name),
            "; it stays until they let go, or unpublish it without unless_held")),
        reason::kHeld);
  }
  released = Remove(*entry);
  return absl::OkStatus();
}

BufferLease PublishedBuffers::Remove(const Entry& removed) {
  auto it = by_name_.find(Key(removed.tenant, removed.name));
  const std::shared_ptr<Entry> entry = it->second;
  by_name_.erase(it);
  by_buffer_.erase(entry->buffer.get());
  if (entry->ttl) --with_ttl_;
  if (Version* version = VersionOf(*entry)) {
    --version->names;
    version->lost_names = version->holders > 0;
    ForgetVersionIfGone(*entry);
  }
  return std::move(entry->buffer);
}

std::vector<PublishedBuffers::Listed> PublishedBuffers::List(const Tenant& tenant) const {
  std::vector<Listed> listed;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, entry] : by_name_) {
      if (key.first == tenant.index()) listed.push_back({entry->buffer, Facts(*entry)});
    }
  }
  std::sort(listed.begin(), listed.end(),
            [](const auto& a, const auto& b) { return a.facts.name < b.facts.name; });
  return listed;
}

std::optional<PublishedFacts> PublishedBuffers::FactsOf(const Buffer& buffer) const {
  if (!buffer.published()) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  auto it = by_buffer_.find(&buffer);
  if (it == by_buffer_.end()) return std::nullopt;
  return Facts(*it->second);
}

std::string PublishedBuffers::NameOf(const Buffer& buffer) const {
  const std::optional<PublishedFacts> facts = FactsOf(buffer);
  return facts ? facts->name : "";
}

PublishedFacts PublishedBuffers::Facts(const Entry& entry) const {
  PublishedFacts facts{.name = entry.name,
                       .owner = entry.owner,
                       .content_hash = entry.content_hash,
                       .ttl = entry.ttl,
                       .published = entry.published,
                       .last_use = entry.holders > 0 ? clock_.Now() : entry.last_use,
                       .holders = entry.holders};
  auto it = versions_.find(Key(entry.tenant, entry.base));
  facts.current =
      entry.version != 0 && it != versions_.end() && it->second.current == entry.version;
  return facts;
}

std::vector<std::string> PublishedBuffers::Expire() {
  std::vector<std::string> names;
  std::vector<BufferLease> released;  // freed after the lock is let go
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  if (with_ttl_ == 0 || now < next_expiry_) return names;
  next_expiry_ = now + kExpireEvery;
  std::vector<std::shared_ptr<Entry>> over;
  for (const auto& [key, entry] : by_name_) {
    if (!entry->ttl) continue;
    // All of a version is in use while a session holds one buffer of it: it may find others yet.
    const Version* version = VersionOf(*entry);
    if ((version != nullptr ? version->holders : entry->holders) > 0) continue;
    absl::Time last_use = entry->last_use;
    if (version != nullptr) last_use = std::max(last_use, version->last_use);
    if (last_use + *entry->ttl <= now) over.push_back(entry);
  }
  for (const auto& entry : over) {
    released.push_back(Remove(*entry));
    names.push_back(entry->name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void PublishedBuffers::MoveTimes(absl::Duration by) {
  absl::MutexLock lock(&mutex_);
  next_expiry_ += by;
  for (const auto& [key, entry] : by_name_) entry->last_use += by;
  for (auto& [key, versions] : versions_) {
    for (auto& [number, version] : versions.all) version.last_use += by;
  }
}

void PublishedBuffers::Clear() {
  std::vector<BufferLease> released;
  absl::MutexLock lock(&mutex_);
  for (auto& [key, entry] : by_name_) released.push_back(std::move(entry->buffer));
  by_name_.clear();
  by_buffer_.clear();
  versions_.clear();
  with_ttl_ = 0;
}

}  // namespace gemmd::server
