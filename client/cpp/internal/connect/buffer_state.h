// What is behind a Buffer.

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/buffer.h"
#include "client/cpp/internal/connect/session_core.h"
#include "client/cpp/shared_memory.h"
#include "client/cpp/types.h"
#include "gemmd/v1/buffer_service.pb.h"

namespace gemmd::client {

struct Buffer::State {
  // Shared with the session and its other buffers: a buffer may outlive the Session object.
  std::shared_ptr<SessionCore> session;
  Handle id;
  int64_t size_bytes = 0;
  std::string device;
  MemoryKind memory_kind = MemoryKind::kDevice;
  DType dtype = DType::kUnspecified;
  std::vector<int64_t> shape;
  std::string label;
  std::string published_name;
  std::string content_hash;
  std::atomic<bool> read_only = false;  // Publish sets it while others may look
  bool owned = false;

  // Of a kHostShared buffer: mapped when first asked for, then kept. Reading asks for a mapping
  // that cannot write unless one that can is there.
  absl::Mutex mu;
  SharedMemory readable ABSL_GUARDED_BY(mu);
  SharedMemory writable ABSL_GUARDED_BY(mu);

  // The memory behind `id` in this process, or why not.
  absl::StatusOr<absl::Span<char>> Map(bool for_writing);
};

// INTERNAL when the server sent what is no buffer. `mapped` is its memory, if this process made it.
absl::StatusOr<Buffer> MakeBuffer(std::shared_ptr<SessionCore> session, const v1::Buffer& info,
                                  bool owned, SharedMemory mapped = {});

// After publishing.
void SetReadOnly(Buffer& buffer);

// Export and the exchange on the share socket: the descriptor, which the caller closes; the memory
// that it is; what it says of device memory.
absl::StatusOr<int> FetchShared(const SessionCore& session, const Handle& buffer, bool writable,
                                const CallOptions& options = {});
absl::StatusOr<SharedMemory> FetchMemory(const SessionCore& session, const Handle& buffer,
                                         int64_t size_bytes, bool writable,
                                         const CallOptions& options = {});
absl::StatusOr<DeviceMemory> FetchDeviceMemory(const SessionCore& session, const Handle& buffer);

// Puts a message about device memory on the share socket; the token is for ImportBuffer.
absl::StatusOr<std::string> OfferDeviceMemory(const std::string& share_socket,
                                              const DeviceMemory& memory);

}  // namespace gemmd::client
