// RequestPool: requests, parsed into reused blocks of memory. A request for one matmul is some
// fifteen small protobuf objects; on an arena they cost no malloc and no free, about 2 us of a tiny
// call.

#pragma once

#include <google/protobuf/arena.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/service/wire/message.h"

namespace gemmd::server {

// Must outlive what it gave. Thread-safe.
template <typename Request>
class RequestPool {
 public:
  // INVALID_ARGUMENT for bytes that are not a Request. A ByteBuffer is emptied: it is gRPC's and
  // would else be kept until the call is over.
  absl::StatusOr<std::shared_ptr<const Request>> Parse(const grpc::ByteBuffer& bytes) {
    return ParseBy([&bytes](Request& request) {
      return grpc::SerializationTraits<Request>::Deserialize(const_cast<grpc::ByteBuffer*>(&bytes),
                                                             &request)
          .ok();
    });
  }
  absl::StatusOr<std::shared_ptr<const Request>> Parse(std::string_view bytes) {
    return ParseBy([bytes](Request& request) {
      return request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    });
  }

 private:
  static constexpr int kBlockBytes = 8 << 10;  // one matmul with its report takes about 3 KiB
  static constexpr int kMostIdle = 64;

  struct Block {
    Block() : arena(memory, sizeof(memory)) {}
    alignas(16) char memory[kBlockBytes];
    google::protobuf::Arena arena;
  };

  template <typename Parser>
  absl::StatusOr<std::shared_ptr<const Request>> ParseBy(Parser parser) {
    std::unique_ptr<Block> block = Take();
    auto* request = google::protobuf::Arena::CreateMessage<Request>(&block->arena);
    const bool parsed = parser(*request);
    std::shared_ptr<const Request> kept(
        request, [this, held = block.release()](const Request*) { Return(held); });
    if (parsed) return kept;
    return NotAMessage(*Request::descriptor());
  }

  std::unique_ptr<Block> Take() {
    {
      absl::MutexLock lock(&mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Block> block = std::move(idle_.back());
        idle_.pop_back();
        return block;
      }
    }
    return std::make_unique<Block>();
  }

  void Return(Block* held) {
    std::unique_ptr<Block> block(held);
    block->arena.Reset();  // keeps its memory, frees what a large message added
    absl::MutexLock lock(&mutex_);
    if (idle_.size() < kMostIdle) idle_.push_back(std::move(block));
  }

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Block>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
