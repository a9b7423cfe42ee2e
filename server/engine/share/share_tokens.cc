#include "server/engine/share/share_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/engine/text.h"

namespace gemmd::server {

ShareTokens::Entries ShareTokens::RemoveExpired() {
  const absl::Time now = clock_.Now();
  Entries expired;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if (entry->second.expiry > now) continue;
    Release(entry->second);
    expired.insert(entries_.extract(entry));
  }
  return expired;
}

void ShareTokens::Release(const Entry& entry) {
  Pool& of = pool(entry.way);
  --of.waiting;
  const auto owner = of.by_owner.find(entry.owner);
  if (--owner->second == 0) of.by_owner.erase(owner);
}

int ShareTokens::ShareOf(Way way, const std::string& owner) {
  const Pool& of = pool(way);
  if (of.waiting >= most_) return 0;
  const int owners = static_cast<int>(of.by_owner.size()) + !of.by_owner.contains(owner);
  return std::max(1, most_ / (owners + 1));
}

absl::StatusOr<Handle> ShareTokens::Add(Way way, UniqueFd fd, std::string_view owner) {
  Entries expired;
  std::string name(owner);
  absl::MutexLock lock(&mutex_);
  const auto refused = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = pool(way).by_owner.find(name);
    return (found == pool(way).by_owner.end() ? 0 : found->second) >= ShareOf(way, name);
  };
  if (refused()) expired = RemoveExpired();
  if (refused()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        pool(way).waiting, " shared descriptors wait to be fetched, of at most ", most_,
        ", and a fair share of them is ", Text(owner), "'s; fetch them, or retry in ",
        absl::FormatDuration(ShareSocket::kTokenLife)));
  }
  const Handle token = NewHandle();
  ++pool(way).waiting;
  ++pool(way).by_owner[name];
  entries_.emplace(
      token, Entry{std::move(fd), way, clock_.Now() + ShareSocket::kTokenLife, std::move(name)});
  return token;
}

std::optional<UniqueFd> ShareTokens::Take(Way way, const Handle& token) {
  absl::MutexLock lock(&mutex_);
  const auto it = entries_.find(token);
  if (it == entries_.end() || it->second.way != way || it->second.expiry <= clock_.Now()) {
    return std::nullopt;
  }
  UniqueFd fd = std::move(it->second.fd);
  Release(it->second);
  entries_.erase(it);
  return fd;
}

int ShareTokens::DropExpired() {
  Entries expired;
  absl::MutexLock lock(&mutex_);
  expired = RemoveExpired();
  return static_cast<int>(entries_.size());
}

}  // namespace gemmd::server
