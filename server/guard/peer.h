// Peer: what an address or a user may cost before calls of its are admitted, all of its connections
// together.

#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "server/guard/connections.h"
#include "server/guard/token_bucket.h"

namespace gemmd::guard {

// Not thread-safe.
struct Peer {
  // A call that is cancelled leaves some 28 KB to be worked off.
  static constexpr Rate kResets{.burst = 2000, .per_second = 500};
  // Calls before one was admitted, of connections that have used up their own.
  static constexpr Rate kCalls{.burst = 500, .per_second = 100};
  // Bytes of requests before a call was admitted, beyond a burst of half of what all may hold. They
  // are given back when one is: what is left to pay for was read for nothing.
  static constexpr double kBytesPerSecond = 4 << 20;
  // A peer whose connections are cut gets new ones, and with TLS their handshakes, as fast as it
  // asks for them until so many were cut, and then one by one. Who has to wait for longer is
  // refused.
  static constexpr Rate kCuts{.burst = 20, .per_second = 0.2};
  static constexpr absl::Duration kBetweenTurns = absl::Seconds(1);
  static constexpr absl::Duration kLongestWait = absl::Seconds(10);

  explicit Peer(const ConnectionLimits& limits)
      : bytes({.burst = static_cast<double>(limits.max_unfinished_bytes) / 2,
               .per_second = kBytesPerSecond}) {}

  bool MayWait(absl::Time now) {
    // Further away than any turn is: the clock was set back.
    if (next_turn > now + kLongestWait + kBetweenTurns) next_turn = now;
    return next_turn <= now + kLongestWait;
  }
  // When gRPC may get its next connection.
  absl::Time TakeTurn(absl::Time now) {
    if (!cuts.empty(now)) return now;
    const absl::Time turn = std::max(now, next_turn);
    next_turn = turn + kBetweenTurns;
    return turn;
  }

  int connections = 0;
  TokenBucket bytes;
  TokenBucket resets{kResets};
  TokenBucket calls{kCalls};
  TokenBucket cuts{kCuts};
  absl::Time next_turn = absl::InfinitePast();
  absl::Time seen = absl::InfinitePast();
};

}  // namespace gemmd::guard
