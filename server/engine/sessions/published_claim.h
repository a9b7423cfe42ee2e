// PublishedClaim: that a session's handle holds a published buffer. While there is one the buffer
// counts as used, and what the session found by a name without version stays of one version.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/engine/sessions/buffer.h"

namespace gemmd::server {

class PublishedBuffers;

// Move-only; lets go on destruction, which takes the lock of PublishedBuffers.
class PublishedClaim {
 public:
  PublishedClaim() = default;  // on nothing
  PublishedClaim(PublishedClaim&& other) noexcept { *this = std::move(other); }
  PublishedClaim& operator=(PublishedClaim&& other) noexcept {
    std::swap(registry_, other.registry_);
    std::swap(entry_, other.entry_);
    std::swap(session_, other.session_);
    std::swap(via_, other.via_);
    return *this;
  }
  ~PublishedClaim();

 private:
  friend class PublishedBuffers;
  // A published buffer. PublishedBuffers' lock guards it.
  struct Entry {
    int tenant = 0;
    std::string name;
    std::string base;     // of a name with a version
    int64_t version = 0;  // 0: none
    BufferLease buffer;   // null once the name has gone
    std::string owner;
    std::string content_hash;
    std::optional<absl::Duration> ttl;
    absl::Time published;
    absl::Time last_use;
    int64_t holders = 0;  // claims
  };
  // By what name it was found: in full with its version, one without that became a version's, or
  // one that is published without.
  enum class Via { kExact, kVersion, kPlain };

  PublishedBuffers* registry_ = nullptr;
  std::shared_ptr<Entry> entry_;  // shared with the registry; it stays when the name has gone
  uint64_t session_ = 0;
  Via via_ = Via::kExact;
};

}  // namespace gemmd::server
