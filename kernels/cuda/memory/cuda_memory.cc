#include "kernels/cuda/memory/cuda_memory.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/memory/returned.h"

namespace gemmd::kernels::cuda {
namespace {

absl::Status NotShared() {
  return absl::FailedPreconditionError(
      "the memory is not of the kind that other processes map by CUDA IPC; allocate it as shared "
      "device memory");
}

}  // namespace

// Bytes on the device, whoever allocated them.
class MemorySpace::Device : public Memory {
 public:
  int64_t size_bytes() const override { return size_bytes_; }
  std::byte* address() const override { return address_; }
  int shared_fd() const override { return -1; }

  absl::Status Gather(int64_t offset_bytes, Sources sources) override {
    size_t bytes = 0;
    for (const auto& source : sources) bytes += source.size();
    if (absl::Status status = CheckRange(offset_bytes, bytes); !status.ok()) return status;
    return space_.staging_.CopyIn(address_ + offset_bytes, sources);
  }
  absl::Status CopyOut(int64_t offset_bytes, absl::Span<std::byte> target) const override {
    if (absl::Status status = CheckRange(offset_bytes, target.size()); !status.ok()) return status;
    return space_.staging_.CopyOut(address_ + offset_bytes, target);
  }
  absl::StatusOr<DeviceHandle> Share() const override { return NotShared(); }

 protected:
  Device(MemorySpace& space, std::byte* address, int64_t size_bytes)
      : space_(space), address_(address), size_bytes_(size_bytes) {}

  MemorySpace& space_;
  std::byte* const address_;
  const int64_t size_bytes_;

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
};

// Out of the heap's slabs.
class MemorySpace::Piece final : public Device {
 public:
  Piece(MemorySpace& space, std::byte* address, int64_t size_bytes)
      : Device(space, address, size_bytes) {}
  ~Piece() override {
    space_.heap_.Give(address_, size_bytes_);
    space_.device_budget_.Return(size_bytes_);
  }
  MemoryKind kind() const override { return MemoryKind::kDevice; }
};

// An allocation of its own, which other processes may map.
class MemorySpace::Alone final : public Device {
 public:
  Alone(MemorySpace& space, std::byte* address, int64_t size_bytes)
      : Device(space, address, size_bytes) {}
  ~Alone() override {
    space_.heap_.GiveAlone(address_);
    space_.device_budget_.Return(Heap::RoundedAlone(size_bytes_));
  }
  MemoryKind kind() const override { return MemoryKind::kDeviceShared; }
  absl::StatusOr<DeviceHandle> Share() const override {
    if (absl::Status status = space_.fence_.status(); !status.ok()) return status;
    absl::StatusOr<std::string> handle = MakeIpcHandle(address_, space_.ordinal_, space_.fence_);
    if (!handle.ok()) return handle.status();
    return DeviceHandle{
        .handle = *std::move(handle), .size_bytes = size_bytes_, .gpu_uuid = space_.ipc_.gpu_uuid};
  }
};

// Another process's. Charged to no budget: it is not this process's memory.
class MemorySpace::Imported final : public Device {
 public:
  Imported(MemorySpace& space, IpcMapping mapping, int64_t size_bytes)
      : Device(space, mapping.address(), size_bytes), mapping_(std::move(mapping)) {}
  MemoryKind kind() const override { return MemoryKind::kDeviceImported; }

 private:
  const IpcMapping mapping_;
};

// Host memory as the CPU backend makes it, sealed and charged, and pinned for the device besides.
class MemorySpace::Shared final : public Memory {
 public:
  Shared(MemorySpace& space, std::unique_ptr<Memory> host, std::byte* address)
      : space_(space), host_(std::move(host)), address_(address) {}
  ~Shared() override {
    space_.fence_.Check(cudaSetDevice(space_.ordinal_), "choosing the device").IgnoreError();
    CountMemoryReturn();
    // Before the mapping goes: the device must not keep pages that others get.
    space_.fence_.Check(cudaHostUnregister(host_->address()), "unpinning shared memory")
        .IgnoreError();
  }

  int64_t size_bytes() const override { return host_->size_bytes(); }
  MemoryKind kind() const override { return MemoryKind::kHostShared; }
  std::byte* address() const override { return address_; }
  int shared_fd() const override { return host_->shared_fd(); }
  absl::Status Gather(int64_t offset_bytes, Sources sources) override {
    return host_->Gather(offset_bytes, sources);
  }
  absl::Status CopyOut(int64_t offset_bytes, absl::Span<std::byte> target) const override {
    return host_->CopyOut(offset_bytes, target);
  }
  absl::StatusOr<DeviceHandle> Share() const override { return NotShared(); }

 private:
  MemorySpace& space_;
  const std::unique_ptr<Memory> host_;
  std::byte* const address_;  // on the device
};

MemorySpace::MemorySpace(const DeviceInfo& info, int ordinal, MemoryLimits limits,
                         PinnedPool& pinned, Fence& fence)
    : ordinal_(ordinal),
      ipc_{.name = info.name, .gpu_uuid = info.gpu_uuid, .ordinal = ordinal},
      node_(pinned.node()),
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

absl::StatusOr<std::unique_ptr<Memory>> MemorySpace::AllocatePiece(int64_t size_bytes) {
  if (absl::Status status = device_budget_.Take(size_bytes); !status.ok()) return status;
  const absl::StatusOr<std::byte*> address = heap_.Take(size_bytes);
  absl::Status status = address.status();
  if (status.ok()) status = Clear(*address, size_bytes);
  if (status.ok()) return std::make_unique<Piece>(*this, *address, size_bytes);
  if (address.ok()) heap_.Give(*address, size_bytes);
  device_budget_.Return(size_bytes);
  return status;
}

absl::StatusOr<std::unique_ptr<Memory>> MemorySpace::AllocateAlone(int64_t size_bytes) {
  if (size_bytes > std::numeric_limits<int64_t>::max() - kDeviceSharedBlockBytes) {
    return device_budget_.Take(size_bytes);  // refuses: no device has so much
  }
  const int64_t whole = Heap::RoundedAlone(size_bytes);
  if (absl::Status status = device_budget_.Take(whole); !status.ok()) return status;
  const absl::StatusOr<std::byte*> address = heap_.TakeAlone(size_bytes);
  absl::Status status = address.status();
  // To the end of the last block: whoever maps it sees all of it.
  if (status.ok()) status = Clear(*address, whole);
  if (status.ok()) return std::make_unique<Alone>(*this, *address, size_bytes);
  if (address.ok()) heap_.GiveAlone(*address);
  device_budget_.Return(whole);
  return status;
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
  if (kind == MemoryKind::kDeviceImported) {
    return absl::InvalidArgumentError(
        "imported device memory is not allocated here; import it by its owner's handle");
  }
  return kind == MemoryKind::kDevice ? AllocatePiece(size_bytes) : AllocateAlone(size_bytes);
}

absl::StatusOr<std::unique_ptr<Memory>> MemorySpace::ImportDevice(const DeviceHandle& handle) {
  absl::StatusOr<IpcMapping> mapping = IpcMapping::Open(handle, ipc_, fence_);
  if (!mapping.ok()) return mapping.status();
  return std::make_unique<Imported>(*this, *std::move(mapping), handle.size_bytes);
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
  void* address = nullptr;
  absl::Status status;
  const absl::Status bound = RunOnNode(node_, [&] {
    status = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
    if (!status.ok()) return;
    status = fence_.Check(cudaHostRegister(mapped, static_cast<size_t>(size_bytes),
                                           cudaHostRegisterMapped | cudaHostRegisterPortable),
                          absl::StrCat("pinning ", size_bytes, " bytes of shared memory"));
    if (!status.ok()) return;
    status = fence_.Check(cudaHostGetDevicePointer(&address, mapped, 0),
                          "the device address of shared memory");
    if (!status.ok()) cudaHostUnregister(mapped);
  });
  bound.IgnoreError();  // then it lies elsewhere, which is slower and as good
  if (!status.ok()) return status;
  return std::make_unique<Shared>(*this, *std::move(host), static_cast<std::byte*>(address));
}

}  // namespace gemmd::kernels::cuda
