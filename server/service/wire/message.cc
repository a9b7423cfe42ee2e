#include "server/service/wire/message.h"

#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include "absl/strings/str_cat.h"

namespace gemmd::server {

absl::Status NotAMessage(const google::protobuf::Descriptor& type) {
  return absl::InvalidArgumentError(
      absl::StrCat("the request's bytes are not a ", type.full_name(),
                   ", or a string in it is not UTF-8; build it from gemmd's proto files with a "
                   "protobuf library"));
}

absl::Status ReadMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  auto& buffer = const_cast<grpc::ByteBuffer&>(bytes);
  bool parsed = false;
  {
    grpc::ProtoBufferReader reader(&buffer);
    parsed = reader.status().ok() && message.ParseFromZeroCopyStream(&reader);
  }
  buffer.Clear();
  return parsed ? absl::OkStatus() : NotAMessage(*message.GetDescriptor());
}

grpc::ByteBuffer WriteMessage(const google::protobuf::Message& message) {
  grpc::Slice bytes(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(bytes.begin()));
  return grpc::ByteBuffer(&bytes, 1);
}

}  // namespace gemmd::server
