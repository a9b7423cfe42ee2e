// HostMemory: where the bytes of a program's Reads go.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace gemmd::kernels {

// What one Read of a run writes.
struct OutputSpan {
  OutputSpan(absl::Span<std::byte> bytes, bool device_writes = false)
      : bytes(bytes), device_writes(device_writes) {}
  std::byte* data() const { return bytes.data(); }
  size_t size() const { return bytes.size(); }

  absl::Span<std::byte> bytes;
  bool device_writes;  // by itself, and nobody copies
};

// Not cleared: a program that succeeds writes all of it, and of one that fails nobody gets any.
// Freed on destruction, on any thread.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  OutputSpan span() const { return {absl::MakeSpan(data_, size_), device_writes_}; }

 protected:
  HostMemory(std::byte* data, int64_t size, bool device_writes)
      : data_(data), size_(static_cast<size_t>(size)), device_writes_(device_writes) {}

 private:
  std::byte* const data_;
  const size_t size_;
  const bool device_writes_;
};

// Of the heap: the device's bytes are copied there.
class HeapMemory final : public HostMemory {
 public:
  static std::unique_ptr<HostMemory> Of(int64_t size) {
    return std::unique_ptr<HostMemory>(new HeapMemory(new std::byte[size], size));
  }
  ~HeapMemory() override { delete[] data(); }

 private:
  HeapMemory(std::byte* data, int64_t size) : HostMemory(data, size, /*device_writes=*/false) {}
};

}  // namespace gemmd::kernels
