// What a Client and everything made from it share: the connections and the options.

#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/options.h"
#include "client/cpp/security.h"

namespace gemmd::client {

// One connection. `bulk` is a second one, made when first used, for Upload and
// Download: a small call on the same connection would wait behind every megabyte in front of it.
class Connection {
 public:
  Connection(const std::string& target, const ClientOptions& options,
             std::shared_ptr<grpc::ChannelCredentials> credentials);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  std::shared_ptr<grpc::Channel> bulk();
  // Drops the bulk connection; whoever uses it sees a break. The next bulk() is a new one.
  void ResetBulk();

 private:
  const std::string target_;
  const ClientOptions options_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;  // the client's
  const std::shared_ptr<grpc::Channel> channel_;  // shared with streams, as gRPC has it
  absl::Mutex mu_;
  std::shared_ptr<grpc::Channel> bulk_ ABSL_GUARDED_BY(mu_);
};

// Thread-safe.
class ClientCore {
 public:
  ClientCore(std::string target, const ClientOptions& options, Security security);

  // Of an object that is not connected.
  static const std::shared_ptr<ClientCore>& None();
  // FAILED_PRECONDITION for None, and in a forked process; INVALID_ARGUMENT for a traceparent by
  // which gRPC would end the process. Asked before anything is sent.
  absl::Status Usable(const CallOptions& options = {}) const;

  const std::string& target() const { return target_; }
  const ClientOptions& options() const { return options_; }

  // The connections in turn: each session and each stream stays on the one it got.
  Connection& Next();
  Connection& First() { return *connections_[0]; }

  // By the first connection.
  template <typename Response>
  absl::StatusOr<Response> Ask(const google::protobuf::Message& request,
                               const CallOptions& options) {
    return client::Ask<Response>(*this, options, *First().channel(), request);
  }

  absl::Time DeadlineOf(const CallOptions& call) const;
  // Null: this client shows none.
  TokenFile* token() const { return security_.token.get(); }

  void ReportBackground(absl::string_view what, const absl::Status& status) const;

  // Where the daemon passes descriptors, asked for once. FAILED_PRECONDITION if it offers none or
  // shared memory is off, UNAVAILABLE if it cannot be connected to from here: another host.
  // DEADLINE_EXCEEDED, and it is asked again next time, when the daemon does not say.
  absl::StatusOr<std::string> ShareSocket(absl::Duration timeout = absl::Seconds(5));

 private:
  absl::StatusOr<std::string> AskShareSocket(absl::Duration timeout);

  const std::string target_;
  const ClientOptions options_;
  const Security security_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::atomic<uint32_t> next_ = 0;

  absl::Mutex share_mu_;  // not held across the RPC that fills it in
  bool share_known_ ABSL_GUARDED_BY(share_mu_) = false;
  absl::StatusOr<std::string> share_ ABSL_GUARDED_BY(share_mu_);
};

// To be called before gRPC's callback API is used. When the last channel dies inside a callback,
// gRPC 1.51's callback queue joins the very thread it is on and aborts; a reference on it that is
// never given back prevents that. For queues alone: its threads poll every connection of the
// process, so that each answer to a blocking call wakes one of them first (async_calls.h).
void KeepCallbackQueue();

}  // namespace gemmd::client
