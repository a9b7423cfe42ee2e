// What a peer without a credential can do to a daemon's memory and time, over and over until its
// time is over. Each connects again when it is cut.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/hostile/http2.h"

namespace gemmd::hostile {

// What it got done.
struct AttackCounts {
  int64_t connections = 0;  // that were taken
  int64_t cut = 0;          // of them, before their time
  int64_t sent = 0;         // calls or frames, as the attack has them
};

using Attack = AttackCounts (*)(const PeerOptions& options, absl::Time until);

// Header blocks without an end (CVE-2023-33953).
AttackCounts ContinuationFlood(const PeerOptions& options, absl::Time until);
// One header of 26 MiB.
AttackCounts HugeHeader(const PeerOptions& options, absl::Time until);
// 60 calls a connection, on eight of them, whose messages of 4 MiB lack the last byte.
AttackCounts UnfinishedMessages(const PeerOptions& options, absl::Time until);
// 1000 health watches a connection, on twenty of them.
AttackCounts WatchFlood(const PeerOptions& options, absl::Time until);
// Calls that are reset at once (CVE-2023-44487).
AttackCounts RapidReset(const PeerOptions& options, absl::Time until);
// SETTINGS, each of which wants an answer. PINGs gRPC itself ends.
AttackCounts ControlFlood(const PeerOptions& options, absl::Time until);
// Window updates, of which only a reader of much has use for many.
AttackCounts WindowUpdates(const PeerOptions& options, absl::Time until);
// Messages in DATA frames of one byte.
AttackCounts ThinData(const PeerOptions& options, absl::Time until);

struct NamedAttack {
  const char* name;
  Attack run;
};
const std::vector<NamedAttack>& AllAttacks();

}  // namespace gemmd::hostile
