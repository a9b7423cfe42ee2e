#include "kernels/cuda/device/peer_access.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {

absl::Status PeerAccess::CannotReach(const DeviceInfo& home, std::string_view why) const {
  return absl::UnimplementedError(absl::StrCat(device_, " cannot reach memory of ", home.name, ", ",
                                               Text(why), "; download the data and upload it to ",
                                               device_));
}

absl::Status PeerAccess::Enable(const DeviceInfo& home) {
  if (absl::Status fault = fence_.status(); !fault.ok()) return fault;
  if (home.gpu_ordinal < 0) return CannotReach(home, "which is no GPU");
  if (home.gpu_ordinal == ordinal_) return absl::OkStatus();
  // Held while the driver works: who else wants the same must not run before it is done.
  absl::MutexLock lock(&mutex_);
  if (enabled_.contains(home.gpu_ordinal)) return absl::OkStatus();
  int can = 0;
  absl::Status status =
      fence_.Check(cudaDeviceCanAccessPeer(&can, ordinal_, home.gpu_ordinal),
                   absl::StrCat("asking whether ", device_, " can map memory of ", home.name));
  if (!status.ok()) return status;
  if (can == 0) return CannotReach(home, "a GPU whose memory the driver cannot map for it");
  status = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
  if (!status.ok()) return status;
  const cudaError_t code = cudaDeviceEnablePeerAccess(home.gpu_ordinal, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // by another backend of this GPU; else the next launch would be told of it
  } else {
    status = fence_.Check(code, absl::StrCat("mapping memory of ", home.name, " for ", device_));
    if (!status.ok()) return status;
  }
  enabled_.insert(home.gpu_ordinal);
  return absl::OkStatus();
}

}  // namespace gemmd::kernels::cuda
