// Messages of RPCs to and from bytes. gRPC's own way answers bytes that it cannot parse by itself,
// with an empty UNIMPLEMENTED, before anybody was asked who calls; so every RPC here takes bytes.

#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"

namespace gemmd::server {

// INVALID_ARGUMENT for a request whose bytes are no message of the RPC's.
absl::Status NotAMessage(const google::protobuf::Descriptor& type);

// INVALID_ARGUMENT when the bytes are no such message, or one of its strings is not UTF-8. The
// buffer is emptied: it is gRPC's and would else be kept until the call is over.
absl::Status ReadMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

grpc::ByteBuffer WriteMessage(const google::protobuf::Message& message);

// A message of a stream of requests, or that its bytes were none: gRPC would take those for the
// stream's end.
template <typename Message>
struct MaybeMessage {
  Message message;
  bool valid = false;
};

}  // namespace gemmd::server

template <typename Message>
class grpc::SerializationTraits<gemmd::server::MaybeMessage<Message>> {
 public:
  static grpc::Status Deserialize(grpc::ByteBuffer* bytes,
                                  gemmd::server::MaybeMessage<Message>* read) {
    read->valid = grpc::SerializationTraits<Message>::Deserialize(bytes, &read->message).ok();
    return grpc::Status::OK;
  }
};
