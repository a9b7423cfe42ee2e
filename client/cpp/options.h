// How a client connects, waits and tries again.
//
// What is tried again, and when ("break" is a call that ended UNAVAILABLE without a word from the
// daemon, or whose stream was torn; "unsent" is a break before a connection stood):
//
//   call                                             unsent   break         DAEMON SAYS UNAVAILABLE
//   Get*, List*, Find, Explain, Health, KeepAlive,   again    again         returned at once (*)
//     SwitchVersion
//   Execute, Plan::Run (with a random op_id)         again    again, same op_id: runs once   (*)
//   Upload, Download                                 again    resumed where the bytes got to (*)
//   ExportBuffer                                     again    again (an unused token expires) (*)
//   OpenSession, CreateBuffer, ImportBuffer,         again    returned: it may have happened, and
//     CreatePlan, Publish, Unpublish, Delete*, Close          a second try would do it twice   (*)
//   Queue                                            again    never: the tickets in flight fail
//                                                             UNAVAILABLE, open a new queue    (*)
//
// (*) A refusal from the daemon itself (draining, device fenced) carries a reason (ReasonOf) and
// means "elsewhere": it is never retried here, but by Replicas (replicas.h). Nor is any other code.
// Upload and Download also go on after DATA_LOSS (a checksum), Upload after ABORTED while the
// server still sees the cut stream.
//
// Back-off doubles from `initial_backoff` to `max_backoff`, each drawn uniformly from [1/2, 1] of
// it, at most `max_attempts` tries in all, and never past the call's deadline.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gemmd::client {

struct RetryOptions {
  int max_attempts = 4;  // tries in all; 1 turns retries off
  absl::Duration initial_backoff = absl::Milliseconds(20);
  absl::Duration max_backoff = absl::Seconds(1);
};

// What makes a TCP connection private and tells the two sides who they are. The files are PEM and
// read again within a second when they change: new connections take what is new, those that stand
// stay.
struct TlsOptions {
  std::string ca_file = {};    // who signs servers; empty: this system's authorities
  std::string cert_file = {};  // this client's own, with its intermediates; with key_file
  std::string key_file = {};   // without a passphrase
  // The name that the server's certificate must have. Empty: the target's host.
  std::string server_name = {};
};

struct ClientOptions {
  // TCP or Unix-socket connections. Sessions and streams are spread over them; 4 suit bulk
  // transfers between real hosts. 1 to 64.
  int connections = 1;
  int64_t max_receive_bytes = 64 << 20;  // largest message taken from the server
  int64_t max_send_bytes = 64 << 20;     // the server's own limit is limits.max_message_bytes
  // Connect waits this long for the daemon to be there. Zero: not at all; the first call finds out.
  absl::Duration connect_timeout = absl::Seconds(10);
  // For calls that give none. Zero: no deadline.
  absl::Duration default_timeout = absl::ZeroDuration();
  RetryOptions retry = {};
  std::optional<TlsOptions> tls = std::nullopt;  // none: plaintext. Not for Unix sockets.
  // A file that holds a bearer token and nothing else, read again within a second when it changes;
  // one that became unusable leaves the token as it was. Empty: no token is shown. Goes over TLS,
  // Unix sockets and loopback; beyond them Connect refuses, unless the next field is set. One that
  // every user of the machine may read is told to on_background_error.
  std::string token_file = {};
  bool send_token_in_plaintext = false;  // to a network that nobody else can read
  // Move bytes through shared memory when the daemon is on this host. Off: always gRPC.
  bool shared_memory = true;
  // What nobody waits for may fail: deleting a dropped buffer or plan, keeping a session alive.
  // Each is counted (Session::background_errors) and told here; trouble with the token's file is
  // told only. Called on a library thread; must
  // not block or call back into the client.
  std::function<void(absl::string_view what, const absl::Status& status)> on_background_error = {};
};

// How bytes get to the daemon. kGrpc forbids shared memory; kShm fails rather than go by gRPC
// (FAILED_PRECONDITION where there is none).
enum class Route { kAuto, kGrpc, kShm };

// Of one call.
struct CallOptions {
  // Retries included. Zero: ClientOptions.default_timeout. The daemon sees it too, and refuses at
  // once what cannot be done in time.
  absl::Duration timeout = absl::ZeroDuration();
  std::string traceparent = {};  // W3C trace context, sent as it is; empty: none. INVALID_ARGUMENT
                                 // for one that no header takes
};

}  // namespace gemmd::client
