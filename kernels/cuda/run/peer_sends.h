// PeerSends: how large results reach another GPU's memory. A kernel that stores there moves 240
// GB/s and holds its SMs until the last byte has left. So the result is computed into memory here,
// and a copy takes it across, at 380 GB/s, while the stream goes on: it starts 1 to 9 us behind the
// kernel, and a matmul that fills the GPU beside it takes nothing from its rate.
//
//   stream   kernel into place 0 | next kernels ...          | kernel into place 1 | ...
//   copies                       | place 0 to the other GPU  |                     | place 1 ...
//
// Copies are made one after the other. Entries of the stream that touch another GPU's memory by
// themselves stay behind them by Join, and what tells of the end of a run stays behind both by
// Behind.

#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gemmd::kernels::cuda {

// Of one stream, `stream` below, whose device is current in each call. Thread-compatible. Errors
// are ToStatus's (cuda_status.h).
class PeerSends {
 public:
  // One is filled while the other one leaves.
  static constexpr int kPlaces = 2;

  PeerSends() = default;
  ~PeerSends();  // the stream's work is through
  PeerSends(const PeerSends&) = delete;
  PeerSends& operator=(const PeerSends&) = delete;

  // Room for `bytes` in each place. What is under way keeps its own. RESOURCE_EXHAUSTED, and all
  // stays as it was, when the device has not enough.
  absl::Status Grow(int64_t bytes, cudaStream_t stream);
  // Of the first place; null before there is room. Changes when it grows.
  std::byte* room() const { return room_; }
  std::byte* place(int index) const { return room_ + index * place_bytes_; }

  // Has the stream wait until the next `count` places, or all, may be filled.
  absl::Status Await(int count, cudaStream_t stream);
  // The place for the stream's next entry to fill.
  absl::StatusOr<int> Take(cudaStream_t stream);
  // Sends the first `bytes` of a place, as the stream's entries so far leave them.
  absl::Status Send(int place, std::byte* to, int64_t bytes, cudaStream_t stream);

  // Whether something was sent that the stream has not waited for by Join.
  bool pending() const { return pending_; }
  // Has the stream wait for all that was sent.
  absl::Status Join(cudaStream_t stream);
  // A stream whose next entries come behind all that was sent, which is `stream` when nothing was
  // since the last Join; with `all`, behind the stream's entries so far, too. The stream itself
  // does not wait.
  absl::StatusOr<cudaStream_t> Behind(cudaStream_t stream, bool all);
  // Waits on the host for all that was sent.
  cudaError_t Synchronize() const;

 private:
  struct Place {
    cudaEvent_t filled = nullptr, left = nullptr;
    bool waits = false;  // something was sent from it that the stream has not waited for
  };

  absl::Status Begin();  // what the first Send needs

  cudaStream_t copies_ = nullptr;
  cudaEvent_t through_ = nullptr;  // of Behind
  std::array<Place, kPlaces> places_;
  std::byte* room_ = nullptr;
  int64_t place_bytes_ = 0;
  int next_ = 0;   // place
  int last_ = -1;  // place that was sent last
  bool pending_ = false;
};

}  // namespace gemmd::kernels::cuda
