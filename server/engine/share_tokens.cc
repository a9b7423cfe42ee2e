#include "server/engine/share_tokens.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd::server {

ShareTokens::Entries ShareTokens::RemoveExpired() {
  const absl::Time now = clock_.Now();
  Entries expired;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if (entry->second.expiry > now) continue;
    --count(entry->second.way);
    expired.insert(entries_.extract(entry));
  }
  return expired;
}

absl::StatusOr<Handle> ShareTokens::Add(Way way, UniqueFd fd) {
  Entries expired;
  absl::MutexLock lock(&mutex_);
  const auto full = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return entries_.size() >= ShareSocket::kMaxPending ||
           (way == Way::kPut && puts_ >= ShareSocket::kMaxPendingPuts);
  };
  if (full()) expired = RemoveExpired();
  if (full()) {
    const int limit = way == Way::kPut ? ShareSocket::kMaxPendingPuts : ShareSocket::kMaxPending;
    return absl::ResourceExhaustedError(absl::StrCat(
        entries_.size(), " shared descriptors wait to be fetched, the limit is ", limit,
        "; fetch them, or retry in ", absl::FormatDuration(ShareSocket::kTokenLife)));
  }
  const Handle token = NewHandle();
  entries_.emplace(token, Entry{std::move(fd), way, clock_.Now() + ShareSocket::kTokenLife});
  ++count(way);
  return token;
}

std::optional<UniqueFd> ShareTokens::Take(Way way, const Handle& token) {
  absl::MutexLock lock(&mutex_);
  const auto it = entries_.find(token);
  if (it == entries_.end() || it->second.way != way || it->second.expiry <= clock_.Now()) {
    return std::nullopt;
  }
  UniqueFd fd = std::move(it->second.fd);
  entries_.erase(it);
  --count(way);
  return fd;
}

int ShareTokens::DropExpired() {
  Entries expired;
  absl::MutexLock lock(&mutex_);
  expired = RemoveExpired();
  return static_cast<int>(entries_.size());
}

}  // namespace gemmd::server
