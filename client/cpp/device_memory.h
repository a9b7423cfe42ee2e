// A GPU's memory between this process and a daemon on the same host, by CUDA IPC. This library
// calls no CUDA function: it carries handles, and the caller makes and opens them.
//
//   DeviceMemory mine = {.size_bytes = bytes, .gpu_uuid = uuid};       // of a whole cudaMalloc
//   cudaIpcMemHandle_t handle;
//   cudaIpcGetMemHandle(&handle, base);
//   mine.handle.assign(handle.reserved, sizeof(handle.reserved));
//   absl::StatusOr<Buffer> x = session.ImportDevice(mine, {.dtype = ..., .shape = ...});
//
//   absl::StatusOr<DeviceMemory> theirs = y.ShareDevice();            // y is kDeviceShared
//   cudaIpcOpenMemHandle(&base, ..., cudaIpcMemLazyEnablePeerAccess);  // of theirs->handle
//   // bytes [theirs->offset_bytes, + theirs->size_bytes) from base
//
// The server knows nothing of this process's streams: run programs on imported memory once the work
// that wrote it has finished (cudaStreamSynchronize, cudaEventSynchronize). What they write is
// complete when their answer has come.

#pragma once

#include <cstdint>
#include <string>

namespace gemmd::client {

struct DeviceMemory {
  std::string handle = {};   // cudaIpcMemHandle_t of the base of an allocation, 64 bytes
  int64_t offset_bytes = 0;  // from that base; a multiple of 256
  int64_t size_bytes = 0;
  std::string gpu_uuid = {};  // "GPU-5c3f12ab-...", as in Device.gpu_uuid of ListDevices
};

}  // namespace gemmd::client
