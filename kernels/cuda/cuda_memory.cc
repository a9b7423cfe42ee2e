#include "kernels/cuda/cuda_memory.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd::kernels::cuda {

// A piece of the heap.
class MemorySpace::Device final : public Memory {
 public:
  Device(MemorySpace& space, std::byte* address, int64_t size_bytes)
      : space_(space), address_(address), size_bytes_(size_bytes) {}
  ~Device() override {
    space_.heap_.Give(address_, size_bytes_);
    space_.device_budget_.Return(size_bytes_);
  }

  int64_t size_bytes() const override { return size_bytes_; }
  MemoryKind kind() const override { return MemoryKind::kDevice; }
  std::byte* address() const override { return address_; }
  int shared_fd() const override { return -1; }

  absl::Status CopyIn(int64_t offset_bytes, absl::Span<const std::byte> source) override {
    if (absl::Status status = CheckRange(offset_bytes, source.size()); !status.ok()) return status;
    return space_.staging_.CopyIn(address_ + offset_bytes, source);
  }
  absl::Status CopyOut(int64_t offset_bytes, absl::Span<std::byte> target) const override {
    if (absl::Status status = CheckRange(offset_bytes, target.size()); !status.ok()) return status;
    return space_.staging_.CopyOut(address_ + offset_bytes, target);
  }

 private:
  absl::Status CheckRange(int64_t offset_bytes, size_t length) const {
    if (offset_bytes >= 0 && offset_bytes <= size_bytes_ &&
        length <= static_cast<uint64_t>(size_bytes_ - offset_bytes)) {
      return absl::OkStatus();
    }
    return absl::OutOfRangeError(absl::StrCat(length, " bytes at offset ", offset_bytes,
                                              " lie outside the allocation of ", size_bytes_,
                                              " bytes; stay inside it"));
  }

  MemorySpace& space_;
  std::byte* const address_;
  const int64_t size_bytes_;
};

// Host memory as the CPU backend makes it, sealed and charged, and pinned for the device besides.
class MemorySpace::Shared final : public Memory {
 public:
  Shared(MemorySpace& space, std::unique_ptr<Memory> host, std::byte* address)
      : space_(space), host_(std::move(host)), address_(address) {}
  ~Shared() override {
    space_.fence_.Check(cudaSetDevice(space_.ordinal_), "choosing the device").IgnoreError();
    // Before the mapping goes: the device must not keep pages that others get.
    space_.fence_.Check(cudaHostUnregister(host_->address()), "unpinning shared memory")
        .IgnoreError();
  }

  int64_t size_bytes() const override { return host_->size_bytes(); }
  MemoryKind kind() const override { return MemoryKind::kHostShared; }
  std::byte* address() const override { return address_; }
  int shared_fd() const override { return host_->shared_fd(); }
  absl::Status CopyIn(int64_t offset_bytes, absl::Span<const std::byte> source) override {
    return host_->CopyIn(offset_bytes, source);
  }
  absl::Status CopyOut(int64_t offset_bytes, absl::Span<std::byte> target) const override {
    return host_->CopyOut(offset_bytes, target);
  }

 private:
  MemorySpace& space_;
  const std::unique_ptr<Memory> host_;
  std::byte* const address_;  // on the device
};

MemorySpace::MemorySpace(const DeviceInfo& info, int ordinal, MemoryLimits limits,
                         PinnedPool& pinned, Fence& fence)
    : ordinal_(ordinal),
      fence_(fence),
      device_budget_(info.name, limits.device_bytes),
      host_budget_(absl::StrCat("the host, for ", info.name), limits.host_bytes),
      heap_(ordinal, fence),
      staging_(ordinal, pinned, fence) {
  ready_ = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
  if (ready_.ok()) {
    ready_ = fence_.Check(cudaStreamCreateWithFlags(&clear_stream_, cudaStreamNonBlocking),
                          "making a stream");
  }
}

MemorySpace::~MemorySpace() {
  cudaSetDevice(ordinal_);  // for the members too
  if (clear_stream_ != nullptr) cudaStreamDestroy(clear_stream_);
}

absl::Status MemorySpace::Clear(std::byte* address, int64_t bytes) {
  if (!ready_.ok()) return ready_;
  absl::Status status = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
  cudaEvent_t cleared = nullptr;
  if (status.ok()) {
    status =
        fence_.Check(cudaEventCreateWithFlags(&cleared, cudaEventDisableTiming), "making an event");
  }
  if (!status.ok()) return status;
  status = fence_.Check(cudaMemsetAsync(address, 0, static_cast<size_t>(bytes), clear_stream_),
                        "clearing memory");
  if (status.ok())
    status = fence_.Check(cudaEventRecord(cleared, clear_stream_), "clearing memory");
  // An event of its own: waiting for the stream would wait for other threads' memory too.
  if (status.ok()) status = fence_.Check(cudaEventSynchronize(cleared), "clearing memory");
  cudaEventDestroy(cleared);
  return status;
}

absl::StatusOr<std::unique_ptr<Memory>> MemorySpace::AllocateDevice(int64_t size_bytes) {
  const absl::StatusOr<std::byte*> address = heap_.Take(size_bytes);
  if (!address.ok()) return address.status();
  if (absl::Status status = Clear(*address, size_bytes); !status.ok()) {
    heap_.Give(*address, size_bytes);
    return status;
  }
  return std::make_unique<Device>(*this, *address, size_bytes);
}

absl::StatusOr<std::unique_ptr<Memory>> MemorySpace::Allocate(int64_t size_bytes, MemoryKind kind) {
  if (absl::Status status = fence_.status(); !status.ok()) return status;
  if (kind == MemoryKind::kHostShared) {
    return Register(cpu::AllocateMemory(host_budget_, size_bytes, kind));
  }
  if (size_bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("size_bytes=", size_bytes, " is not positive; allocate at least 1 byte"));
  }
  if (absl::Status status = device_budget_.Take(size_bytes); !status.ok()) return status;
  auto memory = AllocateDevice(size_bytes);
  if (!memory.ok()) device_budget_.Return(size_bytes);
  return memory;
}

absl::StatusOr<std::unique_ptr<Memory>> MemorySpace::ImportShared(int fd, int64_t size_bytes) {
  if (absl::Status status = fence_.status(); !status.ok()) return status;
  return Register(cpu::ImportMemory(host_budget_, fd, size_bytes));
}

absl::StatusOr<std::unique_ptr<Memory>> MemorySpace::Register(
    absl::StatusOr<std::unique_ptr<Memory>> host) {
  if (!host.ok()) return host;
  std::byte* const mapped = (*host)->address();
  const int64_t size_bytes = (*host)->size_bytes();
  absl::Status status = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
  if (status.ok()) {
    status = fence_.Check(cudaHostRegister(mapped, static_cast<size_t>(size_bytes),
                                           cudaHostRegisterMapped | cudaHostRegisterPortable),
                          absl::StrCat("pinning ", size_bytes, " bytes of shared memory"));
  }
  if (!status.ok()) return status;
  void* address = nullptr;
  status = fence_.Check(cudaHostGetDevicePointer(&address, mapped, 0),
                        "the device address of shared memory");
  if (!status.ok()) {
    cudaHostUnregister(mapped);
    return status;
  }
  return std::make_unique<Shared>(*this, *std::move(host), static_cast<std::byte*>(address));
}

}  // namespace gemmd::kernels::cuda
