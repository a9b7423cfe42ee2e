// QueueInbox: messages of a Queue stream that were read and are not yet accepted.

#ifndef GEMMD_SERVER_SERVICE_QUEUE_INBOX_H_
#define GEMMD_SERVER_SERVICE_QUEUE_INBOX_H_

#include <array>
#include <cstddef>

#include "gemmd/v1/compute_service.pb.h"
#include "server/service/message.h"

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
  void Push() { ++read_; }  // it has been read
  v1::QueueRequest& front() { return places_[taken_ % kPlaces].message; }
  bool front_valid() const { return places_[taken_ % kPlaces].valid; }  // else front() is nothing
  void Pop() { ++taken_; }

 private:
  std::array<MaybeMessage<v1::QueueRequest>, kPlaces> places_;
  size_t read_ = 0, taken_ = 0;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_QUEUE_INBOX_H_
