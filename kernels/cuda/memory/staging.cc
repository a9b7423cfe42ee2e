#include "kernels/cuda/memory/staging.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "kernels/cpu/stream_copy.h"

namespace gemmd::kernels::cuda {

Staging::Staging(int ordinal, PinnedPool& pool, Fence& fence)
    : ordinal_(ordinal), pool_(pool), fence_(fence) {
  for (Slot& slot : slots_) free_.push_back(&slot);
  ready_ = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
  for (cudaStream_t* stream : {&in_, &out_}) {
    if (!ready_.ok()) break;
    ready_ = fence_.Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking),
                          "making a copy stream");
  }
  // At once, so that what is pinned does not grow with the number of copies that happen to meet. A
  // slot that is refused is asked for again when a copy takes it.
  for (Slot& slot : slots_) {
    if (!ready_.ok() || !Prepare(slot).ok()) break;
  }
}

Staging::~Staging() {
  for (Slot& slot : slots_) {
    if (slot.arrived != nullptr) cudaEventDestroy(slot.arrived);
  }
  for (cudaStream_t stream : {in_, out_}) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

Staging::Slot* Staging::Take(bool wait) {
  absl::MutexLock lock(&mutex_);
  if (wait) {
    const auto some = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !free_.empty(); };
    mutex_.Await(absl::Condition(&some));
  }
  if (free_.empty()) return nullptr;
  Slot* slot = free_.back();
  free_.pop_back();
  return slot;
}

void Staging::Give(Slot* slot) {
  absl::MutexLock lock(&mutex_);
  free_.push_back(slot);
}

absl::Status Staging::Prepare(Slot& slot) {
  if (slot.arrived == nullptr) {
    const absl::Status status = fence_.Check(
        cudaEventCreateWithFlags(&slot.arrived, cudaEventDisableTiming), "making an event");
    if (!status.ok()) return status;
  }
  if (slot.block.data() != nullptr) return absl::OkStatus();
  absl::StatusOr<PinnedBlock> block = pool_.Take(kSlotBytes);
  if (block.ok()) slot.block = *std::move(block);
  return block.status();
}

absl::Status Staging::Run(int64_t size_bytes, cudaStream_t stream, Start start, Step finish) {
  absl::Status status = ready_.ok() ? fence_.status() : ready_;
  if (!status.ok()) return status;
  status = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
  std::deque<Piece> flying;
  const auto land = [&] {
    const Piece piece = flying.front();
    flying.pop_front();
    const cudaError_t code = cudaEventSynchronize(piece.slot->arrived);
    if (code != cudaSuccess && status.ok()) status = fence_.Check(code, "waiting for a copy");
    if (status.ok()) finish(piece);
    return piece.slot;
  };
  for (int64_t offset = 0; offset < size_bytes && status.ok(); offset += kSlotBytes) {
    // Who holds a slot never waits for another copy's: it takes its own oldest one again.
    Slot* slot = flying.size() < kSlotsPerCopy ? Take(/*wait=*/flying.empty()) : nullptr;
    if (slot == nullptr) slot = land();
    const Piece piece{slot, offset, std::min(kSlotBytes, size_bytes - offset)};
    if (status.ok()) status = Prepare(*slot);
    if (status.ok()) status = fence_.Check(start(piece), "copying");
    if (status.ok()) status = fence_.Check(cudaEventRecord(slot->arrived, stream), "copying");
    if (status.ok()) {
      flying.push_back(piece);
      continue;
    }
    // The copy may have been queued: the slot is not free before the stream is through.
    fence_.Check(cudaStreamSynchronize(stream), "waiting for copies").IgnoreError();
    Give(slot);
  }
  while (!flying.empty()) Give(land());
  return status;
}

absl::Status Staging::CopyIn(std::byte* device, Memory::Sources sources) {
  int64_t size_bytes = 0;
  for (const auto& source : sources) size_bytes += static_cast<int64_t>(source.size());
  size_t source = 0;  // pieces come in order: what of the sources is not in a slot yet
  size_t at = 0;
  return Run(
      size_bytes, in_,
      [&](const Piece& piece) {
        const auto bytes = static_cast<size_t>(piece.bytes);
        for (size_t filled = 0; filled < bytes;) {
          const size_t part = std::min(bytes - filled, sources[source].size() - at);
          cpu::StreamCopy(piece.slot->block.data() + filled, sources[source].data() + at, part);
          filled += part;
          at += part;
          if (at < sources[source].size()) continue;
          ++source;
          at = 0;
        }
        return cudaMemcpyAsync(device + piece.offset, piece.slot->block.data(), piece.bytes,
                               cudaMemcpyHostToDevice, in_);
      },
      [](const Piece&) {});
}

absl::Status Staging::CopyOut(const std::byte* device, absl::Span<std::byte> target) {
  return Run(
      static_cast<int64_t>(target.size()), out_,
      [&](const Piece& piece) {
        return cudaMemcpyAsync(piece.slot->block.data(), device + piece.offset, piece.bytes,
                               cudaMemcpyDeviceToHost, out_);
      },
      [&](const Piece& piece) {
        std::memcpy(target.data() + piece.offset, piece.slot->block.data(), piece.bytes);
      });
}

}  // namespace gemmd::kernels::cuda
