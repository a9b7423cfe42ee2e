#include "client/cpp/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/internal/connect/buffer_state.h"
#include "client/cpp/internal/connect/session_core.h"
#include "client/cpp/internal/connect/share_socket.h"
#include "client/cpp/shared_memory.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

constexpr size_t kMaxRecordBytes = 4096;

// Tells this process from every other, so that nobody maps its own memory.
const std::string& ProcessName() {
  static const auto* const kName = [] {
    absl::BitGen random;
    return new std::string(
        absl::StrCat(absl::Hex(random(), absl::kZeroPad16), absl::Hex(random(), absl::kZeroPad16)));
  }();
  return *kName;
}

}  // namespace

absl::StatusOr<DeviceMemory> FetchDeviceMemory(const SessionCore& session, const Handle& buffer) {
  GEMMD_ASSIGN_OR_RETURN(const int fd, FetchShared(session, buffer, /*writable=*/true));
  absl::Cleanup closer = [&] { close(fd); };
  std::array<char, kMaxRecordBytes> bytes;
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  v1::CudaIpcMemory record;
  if (got < 0 || !record.ParseFromArray(bytes.data(), static_cast<int>(got))) {
    return absl::InternalError("the server's descriptor holds no CudaIpcMemory message");
  }
  if (record.process() == ProcessName()) {
    return absl::FailedPreconditionError(
        "the device memory belongs to this process, which cannot map it a second time; use it "
        "where it is");
  }
  return DeviceMemory{.handle = record.handle(),
                      .offset_bytes = record.offset_bytes(),
                      .size_bytes = record.size_bytes(),
                      .gpu_uuid = record.gpu_uuid()};
}

absl::StatusOr<std::string> OfferDeviceMemory(const std::string& share_socket,
                                              const DeviceMemory& memory) {
  v1::CudaIpcMemory record;
  record.set_handle(memory.handle);
  record.set_offset_bytes(memory.offset_bytes);
  record.set_size_bytes(memory.size_bytes);
  record.set_gpu_uuid(memory.gpu_uuid);
  record.set_process(ProcessName());
  const std::string bytes = record.SerializeAsString();
  if (bytes.size() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(absl::StrCat("handle has ", memory.handle.size(),
                                                   " bytes, gpu_uuid ", memory.gpu_uuid.size(),
                                                   "; they are 64 and about 40"));
  }
  GEMMD_ASSIGN_OR_RETURN(const SharedMemory sealed,
                         SharedMemory::Create(static_cast<int64_t>(bytes.size())));
  std::memcpy(sealed.span().data(), bytes.data(), bytes.size());
  return SendDescriptor(share_socket, sealed.fd());
}

}  // namespace gemmd::client
