// ArenaMessages: a call's request and response in one reused block of memory. A request for one
// matmul is some fifteen small protobuf objects; on an arena they cost no malloc and no free, about
// 2 us of a tiny call.

#ifndef GEMMD_SERVER_SERVICE_ARENA_MESSAGES_H_
#define GEMMD_SERVER_SERVICE_ARENA_MESSAGES_H_

#include <google/protobuf/arena.h>
#include <grpcpp/support/message_allocator.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace gemmd::server {

// Give it to a service's SetMessageAllocatorFor_X. Must outlive the calls. Thread-safe.
template <typename Request, typename Response>
class ArenaMessages final : public grpc::MessageAllocator<Request, Response> {
 public:
  grpc::MessageHolder<Request, Response>* AllocateMessages() override {
    std::unique_ptr<Holder> holder;
    {
      absl::MutexLock lock(&mutex_);
      if (!idle_.empty()) {
        holder = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (holder == nullptr) holder = std::make_unique<Holder>(*this);
    holder->Fill();
    return holder.release();  // back by Release
  }

 private:
  static constexpr int kBlockBytes = 8 << 10;  // one matmul with its report takes about 3 KiB
  static constexpr int kMostIdle = 64;

  class Holder final : public grpc::MessageHolder<Request, Response> {
   public:
    explicit Holder(ArenaMessages& owner) : owner_(owner), arena_(block_, sizeof(block_)) {}

    void Fill() {
      this->set_request(google::protobuf::Arena::CreateMessage<Request>(&arena_));
      this->set_response(google::protobuf::Arena::CreateMessage<Response>(&arena_));
    }
    void Release() override {
      arena_.Reset();  // keeps block_, frees what a large message added
      std::unique_ptr<Holder> self(this);
      absl::MutexLock lock(&owner_.mutex_);
      if (owner_.idle_.size() < kMostIdle) owner_.idle_.push_back(std::move(self));
    }

   private:
    ArenaMessages& owner_;
    alignas(16) char block_[kBlockBytes];
    google::protobuf::Arena arena_;
  };

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Holder>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_ARENA_MESSAGES_H_
