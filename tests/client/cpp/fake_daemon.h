// A daemon that is not one: serves the wire API in the test's own process, on a socket of its own,
// keeps buffers as strings, and fails where the test tells it to. It runs Write, Read and Copy on
// bytes and takes every other op as done, so that what a client sent shows in what comes back.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"

namespace grpc {
class ServerCredentials;
}  // namespace grpc

namespace gemmd::client {

struct FakeState;

class FakeDaemon {
 public:
  struct Options {
    int window_batches = 4;
    int64_t window_bytes = 1 << 20;
    int batches_per_message = 0;  // of a queue; 0: as before there were such messages
    bool share = false;           // serve a share socket
    bool loopback = false;        // "127.0.0.1:<free port>" instead of an abstract Unix socket
    absl::Duration ttl = absl::Seconds(30);
    std::string name = "";  // of its abstract Unix socket, to come back under it; one of its own
    std::shared_ptr<grpc::ServerCredentials> credentials = nullptr;  // of a loopback one; plaintext
  };
  FakeDaemon();
  explicit FakeDaemon(const Options& options);
  ~FakeDaemon();

  const std::string& target() const { return target_; }

  // The next `times` calls of `method` ("Execute") answer `status`. With `after` they do their work
  // first: the answer alone is lost. A status without a reason looks like the network's.
  void Fail(absl::string_view method, absl::Status status, int times = 1, bool after = false);
  // The next calls of `method` wait until the client gives up.
  void Stall(absl::string_view method, int times = 1);
  int Calls(absl::string_view method) const;  // made so far, failed ones included

  // The trailing and leading metadata of the last call that had them.
  std::string LastMetadata(absl::string_view key) const;

  int ProgramsRun() const;  // replays left out
  int OpenSessions() const;
  int HeldSessions() const;
  std::vector<std::string> Buffers() const;  // ids, oldest first
  int Plans() const;
  std::string Bytes(absl::string_view buffer_id) const;
  void Forget(absl::string_view buffer_id);  // as if another had deleted it
  void EndSessions();                        // as if their ttl were over
  void CutHolds();
  void AnnounceDrain(absl::Time deadline);
  void ServeHealth(bool serving);  // what a health check of "" answers
  // Ends after so many buffers were there at once; more are RESOURCE_EXHAUSTED.
  void LimitBuffers(int most);

  // Uploads: the stream is cut when so many chunks were committed, `times` times.
  void CutUploads(int after_chunks, int times = 1);
  void DamageUpload(int chunk);  // the chunk's checksum does not match, once
  // Downloads: as above; a damaged chunk has one byte changed, the next `times` times.
  void CutDownloads(int after_chunks, int times = 1);
  void DamageDownloads(int times = 1);

  // Queues: while held no batch completes; released, all do, as many to a message as asked for.
  void HoldCompletions();
  void ReleaseCompletions(int per_message = 1);
  int BatchesHeld() const;
  int MostBatchesInFlight() const;
  std::vector<int> QueueMessages() const;  // of queues: how many batches came in each
  void FailBatch(int64_t sequence, absl::Status status);
  void CutQueueAt(int64_t sequence);  // the stream ends when this batch arrives
  void MisorderCompletions();         // the next two completions change places

 private:
  std::unique_ptr<FakeState> state_;
  std::string target_;
};

// A client of `daemon` that tries again quickly.
Client ConnectTo(const FakeDaemon& daemon, ClientOptions options = {});

}  // namespace gemmd::client
