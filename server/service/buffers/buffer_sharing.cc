#include "server/service/buffers/buffer_sharing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/observe/label.h"
#include "server/engine/reason.h"
#include "server/engine/share/share_record.h"
#include "server/service/buffers/buffer_call.h"
#include "server/service/wire/convert.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

using kernels::MemoryKind;

absl::Status NotShared(absl::string_view message) {
  return WithReason(absl::FailedPreconditionError(message), reason::kNotShared);
}

absl::Status CheckExport(const BufferRef& ref, bool writable) {
  const MemoryKind kind = ref.buffer->spec().kind;
  if (kind == MemoryKind::kDevice) {
    return NotShared(
        "the buffer is not shared memory; create it with memory_kind HOST_SHARED or DEVICE_SHARED, "
        "or use Download");
  }
  if (kind == MemoryKind::kDeviceImported) {
    return NotShared(
        "the buffer is imported device memory, which its owner alone can share; ask that process "
        "for its handle");
  }
  const bool of_device = kind == MemoryKind::kDeviceShared;
  if (ref.read_only() && (writable || of_device)) {
    return WithReason(
        absl::FailedPreconditionError(
            of_device ? "the buffer is published and so read-only, and CUDA IPC maps for writing "
                        "only; copy it into a DEVICE_SHARED buffer and export that"
                      : "the buffer is published and so read-only; export it with writable unset"),
        reason::kReadOnly);
  }
  if (of_device && !writable) {
    return absl::InvalidArgumentError(
        "writable is unset, and CUDA IPC maps for writing only; set it to map a DEVICE_SHARED "
        "buffer");
  }
  return absl::OkStatus();
}

// The descriptor of a memfd with what another process needs to map the buffer.
absl::StatusOr<UniqueFd> DeviceRecord(ServerState& state, const Buffer& buffer) {
  GEMMD_ASSIGN_OR_RETURN(auto handle, buffer.memory().Share());
  v1::CudaIpcMemory record;
  record.set_handle(handle.handle);
  record.set_offset_bytes(handle.offset_bytes);
  record.set_size_bytes(handle.size_bytes);
  record.set_gpu_uuid(handle.gpu_uuid);
  record.set_process(state.instance_id());
  return WriteRecord(record.SerializeAsString());
}

absl::StatusOr<kernels::DeviceHandle> ReadDeviceRecord(ServerState& state, int fd) {
  GEMMD_ASSIGN_OR_RETURN(auto bytes, ReadRecord(fd));
  v1::CudaIpcMemory record;
  if (!record.ParseFromString(bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the memfd's ", bytes.size(), " bytes are no CudaIpcMemory message; put one into it"));
  }
  if (record.process() == state.instance_id()) {
    return NotShared(
        "the device memory is this server's own, exported from here; use the buffer that it is "
        "already, or publish it for other sessions");
  }
  return kernels::DeviceHandle{.handle = record.handle(),
                               .offset_bytes = record.offset_bytes(),
                               .size_bytes = record.size_bytes(),
                               .gpu_uuid = record.gpu_uuid()};
}

// The device of the GPU that holds the memory. A server without a GPU gives the session's: its
// backend says why that cannot be.
absl::StatusOr<Device*> DeviceOfGpu(ServerState& state, const std::string& uuid, Device* fallback) {
  std::string gpus;
  for (const auto& device : state.devices()) {
    const std::string& its = device->backend().info().gpu_uuid;
    if (its.empty()) continue;
    if (its == uuid) return device.get();
    absl::StrAppend(&gpus, gpus.empty() ? "" : ", ", device->name(), " is ", its);
  }
  if (gpus.empty()) return fallback;
  return NotShared(absl::StrCat("the memory is on the GPU \"", uuid.substr(0, 64),
                                "\", which is none of this server's (", gpus,
                                "); copy the data to one of them, or use Upload"));
}

// `spec` of a device import: what the request leaves open is the whole memory.
absl::StatusOr<BufferSpec> DeviceSpec(const v1::ImportBufferRequest& request,
                                      const kernels::DeviceHandle& handle) {
  const bool open = request.size_bytes() == 0 && request.dtype() == v1::DTYPE_UNSPECIFIED;
  auto spec = ConvertSpec(request.dtype(), request.shape(),
                          open ? handle.size_bytes : request.size_bytes());
  if (!spec.ok()) return spec.status();
  if (spec->size_bytes > handle.size_bytes) {
    return NotShared(absl::StrCat("size_bytes=", spec->size_bytes, " is more than the ",
                                  handle.size_bytes,
                                  " bytes of device memory handed over; import at most those"));
  }
  spec->kind = MemoryKind::kDeviceImported;
  return spec;
}

absl::Status ImportDevice(Call& call, Session& session, const v1::ImportBufferRequest& request,
                          int fd, v1::Buffer* response) {
  GEMMD_ASSIGN_OR_RETURN(auto handle, ReadDeviceRecord(call.state(), fd));
  GEMMD_ASSIGN_OR_RETURN(auto spec, DeviceSpec(request, handle));
  spec.label = request.label();
  handle.size_bytes = spec.size_bytes;
  GEMMD_ASSIGN_OR_RETURN(auto device,
                         DeviceOfGpu(call.state(), handle.gpu_uuid, session.options().device));
  return MakeBuffer(call, session, *device, std::move(spec), {.device = &handle}, response);
}

absl::Status ImportHost(Call& call, Session& session, const v1::ImportBufferRequest& request,
                        int fd, v1::Buffer* response) {
  GEMMD_ASSIGN_OR_RETURN(auto spec,
                         ConvertSpec(request.dtype(), request.shape(), request.size_bytes()));
  spec.kind = MemoryKind::kHostShared;
  spec.label = request.label();
  return MakeBuffer(call, session, *session.options().device, std::move(spec), {.fd = fd},
                    response);
}

}  // namespace

absl::Status ExportBuffer(Call& call, const v1::ExportBufferRequest& request,
                          v1::ExportBufferResponse* response) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  Handle handle;
  GEMMD_ASSIGN_OR_RETURN(auto ref, ResolveBuffer(*use, request.buffer_id(), handle));
  ShareSocket* share = call.state().share();
  if (share == nullptr) {
    return NotShared("this server offers no shared memory (share.disabled); use Download");
  }
  GEMMD_RETURN_IF_ERROR(CheckExport(ref, request.writable()));
  const Buffer& buffer = *ref.buffer;
  const std::string& owner = call.tenant().name();
  absl::StatusOr<Handle> token;
  if (buffer.spec().kind == MemoryKind::kDeviceShared) {
    GEMMD_ASSIGN_OR_RETURN(auto record, DeviceRecord(call.state(), buffer));
    token = share->Offer(record.get(), /*writable=*/false, owner);
  } else {
    token = share->Offer(buffer.memory().shared_fd(), request.writable(), owner);
  }
  if (!token.ok()) return token.status();
  response->set_token(ToBytes(*token));
  response->set_share_socket(share->address());
  response->set_size_bytes(buffer.spec().size_bytes);
  return absl::OkStatus();
}

absl::Status ImportBuffer(Call& call, const v1::ImportBufferRequest& request,
                          v1::Buffer* response) {
  GEMMD_RETURN_IF_ERROR(call.state().CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  GEMMD_RETURN_IF_ERROR(CheckLabel(request.label()));
  const bool of_device = request.memory_kind() == v1::MEMORY_KIND_DEVICE_IMPORTED;
  if (!of_device && request.memory_kind() != v1::MEMORY_KIND_DEVICE &&
      request.memory_kind() != v1::MEMORY_KIND_HOST_SHARED) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory_kind ", static_cast<int>(request.memory_kind()),
                     " is not imported; use HOST_SHARED or DEVICE_IMPORTED"));
  }
  if (!of_device) {
    // Before the token is used up.
    GEMMD_RETURN_IF_ERROR(
        ConvertSpec(request.dtype(), request.shape(), request.size_bytes()).status());
  }
  ShareSocket* share = call.state().share();
  if (share == nullptr) {
    return NotShared("this server offers no shared memory (share.disabled); use Upload");
  }
  GEMMD_ASSIGN_OR_RETURN(auto token, ConvertHandle(request.token(), "token"));
  GEMMD_ASSIGN_OR_RETURN(auto fd, share->Redeem(token));
  return of_device ? ImportDevice(call, *use, request, fd.get(), response)
                   : ImportHost(call, *use, request, fd.get(), response);
}

}  // namespace gemmd::server
