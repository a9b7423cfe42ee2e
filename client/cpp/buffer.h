// A claim on device memory, let go when it is destroyed.
//
//   absl::StatusOr<Buffer> w = session.CreateBuffer({.dtype = DType::kBF16, .shape = {n, k}});
//   absl::StatusOr<TransferReport> moved = w->Upload(AsBytes(absl::MakeConstSpan(host)));
//   ops.Add(Matmul{.a = x, .b = w->tensor(), .d = y});

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/device_memory.h"
#include "client/cpp/tensor.h"
#include "client/cpp/transfer.h"
#include "client/cpp/types.h"

namespace gemmd::client {

class SessionCore;

// What Session::CreateBuffer makes. Either dtype and shape, or size_bytes, or both (then size_bytes
// is at least what the shape takes).
struct BufferSpec {
  DType dtype = DType::kUnspecified;
  std::vector<int64_t> shape = {};  // elements
  int64_t size_bytes = 0;
  MemoryKind memory_kind = MemoryKind::kDevice;
  std::string device = {};  // empty: the session's
  std::string label = {};   // at most 64 bytes of printable ASCII
};

// Move-only. The destructor deletes without waiting: dropped buffers go out together in one
// DeleteBuffers, and a deletion that fails is counted and told (ClientOptions.on_background_error).
// The server frees the memory once programs it has accepted are done with it, so a buffer may be
// dropped as soon as the call that used it has returned, but not before a Queue ticket or
// ExecuteAsync that names it is done. Thread-safe but for moves and destruction.
class Buffer {
 public:
  Buffer();  // no buffer: no id, no bytes
  ~Buffer();
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;

  const Handle& id() const;
  int64_t size_bytes() const;
  DType dtype() const;                      // as created
  absl::Span<const int64_t> shape() const;  // as created
  MemoryKind memory_kind() const;
  absl::string_view device() const;
  absl::string_view label() const;
  // Of a published buffer, as of Find: its full name, and the hash that its publisher gave.
  absl::string_view published_name() const;
  absl::string_view content_hash() const;
  bool read_only() const;  // as of creation or Find; publishing makes it so as well
  // True when destruction deletes it: created, found or imported here, and not released.
  bool owned() const;

  // The whole buffer as created. Invalid (status()) for an untyped buffer.
  Tensor tensor() const;
  // Part of it as something else, row-major.
  Tensor View(DType dtype, absl::Span<const int64_t> shape, int64_t offset_bytes = 0) const;

  // `data` to the buffer from `offset_bytes` on; returns when the server has it. OUT_OF_RANGE past
  // the end, FAILED_PRECONDITION if read-only, ABORTED while another upload to it is under way.
  absl::StatusOr<TransferReport> Upload(absl::string_view data, int64_t offset_bytes = 0,
                                        const TransferOptions& options = {});
  // The other way; fills `data` whole.
  absl::StatusOr<TransferReport> Download(absl::Span<char> data, int64_t offset_bytes = 0,
                                          const TransferOptions& options = {}) const;

  // A kHostShared buffer's memory in this process; lives until the Buffer is destroyed. Asked for
  // again it is the same. FAILED_PRECONDITION for device memory, and for writing to a read-only
  // buffer; UNAVAILABLE when the share socket does not answer.
  absl::StatusOr<absl::Span<char>> Map();
  absl::StatusOr<absl::string_view> MapReadOnly() const;

  // What this process opens to map a kDeviceShared buffer's memory by CUDA IPC; it closes that
  // before it drops the buffer. FAILED_PRECONDITION for other kinds and for a read-only buffer;
  // UNAVAILABLE when the share socket does not answer.
  absl::StatusOr<DeviceMemory> ShareDevice() const;

  // Deletes now and waits for the answer; frees nothing a second time. Once it has answered for a
  // kDeviceImported buffer, the server has unmapped the memory and its owner may free it.
  absl::Status Delete(const CallOptions& options = {});
  // Keeps the buffer on the server when this object goes; the caller has the handle from now on.
  Handle Release();

  // The session's side; use Session::CreateBuffer and its like.
  struct State;
  explicit Buffer(std::unique_ptr<State> state);

 private:
  friend void SetReadOnly(Buffer& buffer);
  const State& state() const;  // of an empty one where there is none

  std::unique_ptr<State> state_;
};

}  // namespace gemmd::client
