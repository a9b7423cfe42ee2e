// Connections: every connection of the daemon's listeners, from its accept to its close: how many
// there are, in all and of one peer, and what each may cost before a call on it was admitted. A
// peer is an address (of IPv6 the first 64 bits) or a user id.
//
// gRPC has no hooks for this, so it stands in front of functions that gRPC calls (watch.cc):
// recvmsg and SSL_read, whose bytes a FrameReader looks at, sendmsg and SSL_write, by which it
// learns what was answered, and close. A connection that exceeds a limit reads an error from then
// on, and gRPC closes it.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/guard/frame_reader.h"

namespace gemmd::guard {

class Connection;

struct ConnectionLimits {
  int max = 0;
  int max_per_peer = 0;
  int max_streams = 0;  // of a connection
  // Unfinished requests of all connections on which no call was admitted yet, together. The
  // connection that holds most gives way.
  int64_t max_unfinished_bytes = 0;
};
// 0 stands for: three quarters of `descriptors`, at most 4096; and half of all, at most 1024.
ConnectionLimits Resolve(ConnectionLimits limits, int64_t descriptors);

enum class Refusal { kNone, kPeer, kAll, kDescriptors };
inline constexpr int kRefusals = 4;
std::string_view Name(Refusal refusal);  // a metric's label: "peer"

struct NewConnection {
  int fd = -1;
  std::string peer;  // whom to count it for
  std::string name;  // as gRPC calls it: "ipv4:10.0.0.7:41234", "fd:17"
  bool tls = false;
  bool health_only = false;  // has places of its own, so that probes find one
};

struct ConnectionCounts {
  int64_t open = 0;
  int64_t unfinished_bytes = 0;
  std::array<int64_t, kRefusals> refused = {};  // by Refusal
  std::array<int64_t, kBreaches> cut = {};      // by Breach
};

// Thread-safe. What was opened stays watched until it is closed, also beyond this object's life.
class Connections {
 public:
  static constexpr int kHealthOnlyPlaces = 64;

  // Called from gRPC's threads when a connection is cut: its name, and why. Must not block.
  using OnCut = std::function<void(std::string_view name, Breach breach)>;
  Connections(const ConnectionLimits& limits, OnCut on_cut);
  ~Connections();

  const ConnectionLimits& limits() const;

  // Begins to watch `connection.fd`, which from then on is given back by close(). On a refusal
  // nothing was taken, and it is counted. `turn`: when it may be handed to gRPC, kept waiting for
  // that if its peer's connections are cut by the dozen.
  Refusal Open(const NewConnection& connection, absl::Time& turn);
  // A connection that could not be accepted at all.
  void CountRefused(Refusal refusal);
  bool full() const;

  // A call on the connection of that name showed what the listener asks for: its requests are no
  // longer bounded here, but by the limits of who calls.
  void NoteAdmitted(std::string_view name);
  // Whether NoteAdmitted has anything to do; cheap.
  bool AwaitsAdmission() const;

  ConnectionCounts counts() const;

  // TLS that begins in this thread meanwhile is that of connection `fd`.
  class HandingOver {
   public:
    explicit HandingOver(int fd);
    ~HandingOver();
    HandingOver(const HandingOver&) = delete;
  };

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace gemmd::guard
