#include "kernels/cuda/run/peer_sends.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kSendAlignment = 1 << 20;

cudaError_t MakeEvent(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
}

}  // namespace

PeerSends::~PeerSends() {
  if (copies_ != nullptr) {
    if (room_ != nullptr) cudaFreeAsync(room_, copies_);
    cudaStreamSynchronize(copies_);
    cudaStreamDestroy(copies_);
  }
  for (const Place& place : places_) {
    for (cudaEvent_t event : {place.filled, place.left}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  if (through_ != nullptr) cudaEventDestroy(through_);
}

absl::Status PeerSends::Begin() {
  if (through_ != nullptr) return absl::OkStatus();
  cudaError_t code = cudaSuccess;
  if (copies_ == nullptr) code = cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking);
  for (Place& place : places_) {
    for (cudaEvent_t* event : {&place.filled, &place.left}) {
      if (code == cudaSuccess && *event == nullptr) code = MakeEvent(event);
    }
  }
  if (code == cudaSuccess) code = MakeEvent(&through_);
  return ToStatus(code, "making a stream for copies to another GPU");
}

absl::Status PeerSends::Grow(int64_t bytes, cudaStream_t stream) {
  if (bytes <= place_bytes_) return absl::OkStatus();
  if (absl::Status begun = Begin(); !begun.ok()) return begun;
  const int64_t size = (bytes + kSendAlignment - 1) / kSendAlignment * kSendAlignment;
  void* grown = nullptr;
  absl::Status status =
      ToStatus(cudaMallocAsync(&grown, static_cast<size_t>(kPlaces * size), stream),
               absl::StrCat("allocating ", kPlaces * size, " bytes for copies to another GPU"));
  if (!status.ok()) {
    cudaGetLastError();  // it is told
    return status;
  }
  std::byte* const old = std::exchange(room_, static_cast<std::byte*>(grown));
  place_bytes_ = size;
  for (Place& place : places_) place.waits = false;
  if (old == nullptr) return absl::OkStatus();
  // Freed once what was launched so far has been sent.
  absl::StatusOr<cudaStream_t> behind = Behind(stream, /*all=*/true);
  if (!behind.ok()) return behind.status();
  return ToStatus(cudaFreeAsync(old, *behind), "freeing memory of copies to another GPU");
}

absl::Status PeerSends::Await(int count, cudaStream_t stream) {
  for (int i = 0; i < std::min(count, kPlaces); ++i) {
    Place& place = places_[(next_ + i) % kPlaces];
    if (!std::exchange(place.waits, false)) continue;
    const cudaError_t code = cudaStreamWaitEvent(stream, place.left, 0);
    if (code != cudaSuccess) return ToStatus(code, "waiting for a copy to another GPU");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> PeerSends::Take(cudaStream_t stream) {
  if (absl::Status free = Await(1, stream); !free.ok()) return free;
  return std::exchange(next_, (next_ + 1) % kPlaces);
}

absl::Status PeerSends::Send(int index, std::byte* to, int64_t bytes, cudaStream_t stream) {
  Place& from = places_[index];
  cudaError_t code = cudaEventRecord(from.filled, stream);
  if (code == cudaSuccess) code = cudaStreamWaitEvent(copies_, from.filled, 0);
  if (code == cudaSuccess) {
    code =
        cudaMemcpyAsync(to, place(index), static_cast<size_t>(bytes), cudaMemcpyDefault, copies_);
  }
  if (code == cudaSuccess) code = cudaEventRecord(from.left, copies_);
  from.waits = pending_ = true;
  last_ = index;
  return ToStatus(code, "sending a result to another GPU");
}

absl::Status PeerSends::Join(cudaStream_t stream) {
  if (!std::exchange(pending_, false)) return absl::OkStatus();
  for (Place& place : places_) place.waits = false;
  return ToStatus(cudaStreamWaitEvent(stream, places_[last_].left, 0),
                  "waiting for copies to another GPU");
}

absl::StatusOr<cudaStream_t> PeerSends::Behind(cudaStream_t stream, bool all) {
  if (!pending_) return stream;
  cudaError_t code = cudaSuccess;
  if (all) {
    code = cudaEventRecord(through_, stream);
    if (code == cudaSuccess) code = cudaStreamWaitEvent(copies_, through_, 0);
  }
  if (code != cudaSuccess) return ToStatus(code, "waiting for copies to another GPU");
  return copies_;
}

cudaError_t PeerSends::Synchronize() const {
  return copies_ == nullptr ? cudaSuccess : cudaStreamSynchronize(copies_);
}

}  // namespace gemmd::kernels::cuda
