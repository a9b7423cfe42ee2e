// A client's claim on buffers and plans: opened with the daemon, kept alive, closed on destruction.
//
//   absl::StatusOr<Session> session = client->OpenSession({.label = "worker-3"});
//   absl::StatusOr<Buffer> x = session->CreateBuffer({.dtype = DType::kF32, .shape = {m, k}});
//   absl::StatusOr<Result> result = session->Execute(ops);

#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cpp/buffer.h"
#include "client/cpp/device_memory.h"
#include "client/cpp/execute.h"
#include "client/cpp/internal/connect/held.h"
#include "client/cpp/ops.h"
#include "client/cpp/plan.h"
#include "client/cpp/queue.h"
#include "client/cpp/shared_memory.h"

namespace gemmd::v1 {
class Buffer;
}  // namespace gemmd::v1

namespace gemmd::client {

class Armed;
class SessionCore;
struct ArmOptions;

// News about a session that nobody asked for.
struct SessionEvent {
  enum class Kind {
    kDraining,  // the server stops soon; no new work after `deadline`
    kEnded,     // closed or expired: its buffers and plans are gone
  };
  Kind kind;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Status status;  // kEnded: why
};

struct SessionOptions {
  std::string label = {};  // for people; at most 64 bytes of printable ASCII
  // "cpu:0"; empty: one with room and the least work queued. Programs run where they write.
  std::string device = {};
  // Time without a call after which the session ends, and how long it survives a cut Hold stream.
  // Zero: the server's default.
  absl::Duration ttl = absl::ZeroDuration();
  absl::Duration grace = absl::ZeroDuration();
  // What keeps it alive. kHold: a stream that is cut when this process dies, reopened within the
  // grace if the network breaks it. kKeepAlive: a call every third of the ttl. kNone: the caller's
  // own calls. The first two take a thread.
  enum class Liveness { kHold, kKeepAlive, kNone } liveness = Liveness::kHold;
  // On that thread; must not block or destroy the session.
  std::function<void(const SessionEvent&)> on_event = {};
  CallOptions call = {};
};

// What goes with a published name.
struct PublishOptions {
  // What the buffer was made of: 32 bytes that Find and ListPublished give back, or none.
  std::string content_hash = {};
  // The name goes after this long without a session that holds the buffer. Zero: it stays.
  absl::Duration ttl = absl::ZeroDuration();
};

// What closing gave back.
struct SessionClosed {
  int64_t freed_bytes = 0;
  int64_t freed_buffers = 0;
};

// Move-only; thread-safe but for moves and destruction. Buffers, plans and queues made from it may
// outlive it: they then answer NOT_FOUND, and their destructors do nothing.
class Session {
 public:
  Session();  // no session
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  const Handle& id() const;         // a secret
  const std::string& name() const;  // "s-17"; empty for an attached session
  const std::string& device() const;
  absl::Duration ttl() const;  // as granted

  // One program, run now. Nothing of it has run when it is refused: INVALID_ARGUMENT, NOT_FOUND,
  // FAILED_PRECONDITION say what is wrong with it, RESOURCE_EXHAUSTED that the queue or a quota is
  // full, UNIMPLEMENTED that no kernel serves an op, DEADLINE_EXCEEDED that it cannot be done in
  // time.
  absl::StatusOr<Result> Execute(const OpList& ops, const ExecuteOptions& options = {});
  // `done` runs on the library's one thread for such calls and must not block.
  void ExecuteAsync(const OpList& ops, const ExecuteOptions& options, ExecuteCallback done);
  std::future<absl::StatusOr<Result>> ExecuteAsync(const OpList& ops,
                                                   const ExecuteOptions& options = {});

  absl::StatusOr<Queue> OpenQueue(const QueueOptions& options = {});
  // RESOURCE_EXHAUSTED at a limit, after dropped plans have been waited for.
  absl::StatusOr<Plan> CreatePlan(const OpList& ops, const PlanOptions& options = {});
  // For callers on the daemon's host: the plan in a slot of shared memory, run without a call; see
  // armed.h. FAILED_PRECONDITION from another host, RESOURCE_EXHAUSTED when all slots are taken,
  // INVALID_ARGUMENT for a plan with Read ops.
  absl::StatusOr<Armed> Arm(const Plan& plan, absl::Span<const Rebinding> bindings = {});
  absl::StatusOr<Armed> Arm(const Plan& plan, absl::Span<const Rebinding> bindings,
                            const ArmOptions& options);

  // Zeroed memory. RESOURCE_EXHAUSTED at a limit, after dropped buffers have been waited for.
  absl::StatusOr<Buffer> CreateBuffer(const BufferSpec& spec, const CallOptions& options = {});
  // The caller's memory as a kHostShared buffer, already mapped; `spec.size_bytes` defaults to all
  // of it.
  absl::StatusOr<Buffer> ImportBuffer(SharedMemory memory, const BufferSpec& spec = {},
                                      const CallOptions& options = {});
  // A GPU's memory of this process as a kDeviceImported buffer on the server's device of that GPU;
  // `spec.size_bytes` defaults to all of it, `spec.device` is not looked at. Keep the memory until
  // Buffer::Delete or Close has answered. FAILED_PRECONDITION, with the remedy, when the server has
  // no device on that GPU or cannot map the memory, UNIMPLEMENTED when it has no GPU.
  absl::StatusOr<Buffer> ImportDevice(const DeviceMemory& memory, const BufferSpec& spec = {},
                                      const CallOptions& options = {});
  // A buffer that exists, by handle; not deleted on destruction.
  absl::StatusOr<Buffer> AttachBuffer(const Handle& id, const CallOptions& options = {});

  // Gives it a name for the tenant's other sessions, read-only from now on. ALREADY_EXISTS.
  // "m@2/w" is "m/w" of version 2 of "m": Client::SwitchVersion.
  absl::Status Publish(Buffer& buffer, absl::string_view name, const CallOptions& options = {});
  absl::Status Publish(Buffer& buffer, absl::string_view name, const PublishOptions& publish,
                       const CallOptions& options);
  // A read-only claim on a published buffer. A name without version is the current version's; this
  // session keeps to that version while it holds a buffer of it.
  absl::StatusOr<Buffer> Find(absl::string_view name, const CallOptions& options = {});
  absl::Status Unpublish(absl::string_view name, const CallOptions& options = {});
  // FAILED_PRECONDITION (HELD) while a session holds the buffer or another of its version.
  absl::Status UnpublishUnlessHeld(absl::string_view name, const CallOptions& options = {});

  // Messages of buffer_service.pb.h.
  absl::StatusOr<std::vector<v1::Buffer>> ListBuffers(const CallOptions& options = {});
  absl::StatusOr<v1::Buffer> GetBuffer(const Handle& id, const CallOptions& options = {});
  // All or, if one is unknown (NOT_FOUND), none. Returns the freed bytes.
  absl::StatusOr<int64_t> DeleteBuffers(absl::Span<const Handle> ids,
                                        const CallOptions& options = {});
  absl::Status DeletePlan(const Handle& id, const CallOptions& options = {});

  // Moves the expiry to now + ttl and returns it.
  absl::StatusOr<absl::Time> KeepAlive(const CallOptions& options = {});
  // Waits until the dropped buffers and plans are deleted.
  void FlushDeletions();
  // Failures nobody waited for: deletions, keeping alive.
  int64_t background_errors() const;

  // Ends the session and waits until its work is finished and its memory is freed.
  absl::StatusOr<SessionClosed> Close(const CallOptions& options = {});
  // Leaves it open on the server and returns its id for Client::AttachSession. Its ttl runs from
  // now on; with Liveness::kHold the grace, as if this process had died.
  Handle Release();

  explicit Session(std::shared_ptr<SessionCore> core);

 private:
  Held<SessionCore> core_;  // shared with buffers, plans, queues and calls under way
};

}  // namespace gemmd::client
