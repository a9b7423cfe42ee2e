// QueueInbox: messages of a Queue stream that were read and are not yet accepted.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "gemmd/v1/compute_service.pb.h"
#include "server/engine/sessions/tenant.h"
#include "server/service/wire/message.h"

namespace gemmd::server {

// The batch at `index` of a message; null when it has none there.
inline v1::Batch* BatchAt(v1::QueueRequest& message, int index) {
  if (message.has_batch()) return index == 0 ? message.mutable_batch() : nullptr;
  if (index >= message.batches().items_size()) return nullptr;
  return message.mutable_batches()->mutable_items(index);
}

// A ring of messages that are used again, memory and all. Not thread-safe, but one thread may fill
// next() and another one look at front() meanwhile.
class QueueInbox {
 public:
  // A batch is accepted while those behind it are read. Few: what is read ahead is in no window.
  static constexpr size_t kPlaces = 4;

  bool empty() const { return read_ == taken_; }
  bool full() const { return read_ - taken_ == kPlaces; }
  // Where the next message is read to, unless full.
  MaybeMessage<v1::QueueRequest>* next() { return &places_[read_ % kPlaces]; }
  // It has been read, and has `bytes` on the wire. `charge` is of the memory it takes; null for
  // little.
  void Push(int64_t bytes, std::shared_ptr<const Charge> charge) {
    rests_[read_ % kPlaces] = {bytes, std::move(charge)};
    ++read_;
  }
  v1::QueueRequest& front() { return places_[taken_ % kPlaces].message; }
  bool front_valid() const { return places_[taken_ % kPlaces].valid; }  // else front() is nothing
  const std::shared_ptr<const Charge>& front_charge() const {
    return rests_[taken_ % kPlaces].charge;
  }
  void Pop() {
    Rest& rest = rests_[taken_ % kPlaces];
    // A message that is used again keeps the memory of every part that was ever in it.
    int64_t& filled = filled_[taken_ % kPlaces];
    if ((filled += rest.bytes) > kKeptBytes) {
      places_[taken_ % kPlaces].message = v1::QueueRequest();
      filled = 0;
    }
    rest = Rest();
    ++taken_;
  }

 private:
  static constexpr int64_t kKeptBytes = 16 << 10;
  struct Rest {
    int64_t bytes = 0;
    std::shared_ptr<const Charge> charge;  // shared with the batches that took data along
  };
  std::array<MaybeMessage<v1::QueueRequest>, kPlaces> places_;
  std::array<Rest, kPlaces> rests_;
  std::array<int64_t, kPlaces> filled_{};  // bytes on the wire since each was made
  size_t read_ = 0, taken_ = 0;
};

}  // namespace gemmd::server
