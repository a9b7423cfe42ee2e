// JobBlocks: memory for jobs that come again and again, one at a time or a few. A job is made by
// the thread that sees a ring and goes away on the one that sees the run's end, and the C library
// takes its time over memory that travels so.
//
//   auto blocks = std::make_shared<JobBlocks>();
//   auto job = std::allocate_shared<SomeJob>(JobAllocator<SomeJob>(blocks), ...);

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace gemmd::server {

// Keeps a few blocks, all of one size: that of the first. Thread-safe.
class JobBlocks {
 public:
  JobBlocks() = default;
  JobBlocks(const JobBlocks&) = delete;
  ~JobBlocks() {
    for (auto& kept : kept_) ::operator delete(kept.load());
  }

  void* Take(size_t bytes) {
    for (auto& kept : kept_) {
      if (kept.load(std::memory_order_relaxed) == nullptr) continue;
      if (void* block = kept.exchange(nullptr, std::memory_order_acquire)) return block;
    }
    return ::operator new(bytes);
  }
  void Give(void* block) {
    for (auto& kept : kept_) {
      void* none = nullptr;
      if (kept.compare_exchange_strong(none, block, std::memory_order_release)) return;
    }
    ::operator delete(block);
  }

 private:
  std::array<std::atomic<void*>, 4> kept_{};
};

// Of one type alone for one JobBlocks.
template <typename T>
struct JobAllocator {
  using value_type = T;

  explicit JobAllocator(std::shared_ptr<JobBlocks> blocks) : blocks(std::move(blocks)) {}
  template <typename U>
  explicit(false) JobAllocator(const JobAllocator<U>& other) : blocks(other.blocks) {}

  T* allocate(size_t count) { return static_cast<T*>(blocks->Take(count * sizeof(T))); }
  void deallocate(T* block, size_t) { blocks->Give(block); }
  template <typename U>
  bool operator==(const JobAllocator<U>& other) const {
    return blocks == other.blocks;
  }

  std::shared_ptr<JobBlocks> blocks;  // shared: the last job may outlive whoever made it
};

}  // namespace gemmd::server
