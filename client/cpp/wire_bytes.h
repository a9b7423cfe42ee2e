// WireBytes: bytes that gRPC may still be sending while their owner goes on to change them.

#pragma once

#include <atomic>
#include <string>
#include <utility>

namespace gemmd::client {

// A string, shared by copies and by messages on their way, and copied by whoever changes it while
// it is. Const use from several threads is safe.
class WireBytes {
 public:
  // What a message holds on to, from Share to Release, on any thread.
  struct Block {
    std::string bytes;
    std::atomic<int> holders = 1;
  };

  WireBytes() : block_(new Block) {}
  WireBytes(const WireBytes& other) : block_(other.Share()) {}
  WireBytes& operator=(WireBytes other) {
    std::swap(block_, other.block_);
    return *this;
  }
  ~WireBytes() { Release(block_); }

  const std::string& bytes() const { return block_->bytes; }

  // Ours alone from here on.
  std::string& ForWriting() {
    if (shared()) *this = WireBytes(block_->bytes);
    return block_->bytes;
  }
  // Keeps its capacity when nobody else has it: a list rebuilt for every step allocates once.
  void Clear() {
    if (shared()) {
      *this = WireBytes();
    } else {
      block_->bytes.clear();
    }
  }

  Block* Share() const {
    block_->holders.fetch_add(1, std::memory_order_relaxed);
    return block_;
  }
  static void Release(Block* block) {
    if (block->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete block;
  }

 private:
  explicit WireBytes(const std::string& bytes) : WireBytes() { block_->bytes = bytes; }
  // Acquires: whoever let go has read the last of it.
  bool shared() const { return block_->holders.load(std::memory_order_acquire) > 1; }

  Block* block_;
};

}  // namespace gemmd::client
