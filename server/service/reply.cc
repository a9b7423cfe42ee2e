#include "server/service/reply.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>

#include <vector>

#include "gemmd/v1/compute_service.pb.h"
#include "server/service/convert.h"

namespace gemmd::server {
namespace {

using google::protobuf::io::CodedOutputStream;

constexpr uint32_t kOutputsTag = v1::ExecuteResponse::kOutputsFieldNumber << 3 | 2;  // bytes
constexpr int kMostHead = 16;  // of an output: its tag and its length

grpc::Slice Shared(const std::shared_ptr<const Outcome>& outcome,
                   const kernels::HostMemory& output) {
  auto* holder = new std::shared_ptr<const Outcome>(outcome);
  return grpc::Slice(
      const_cast<std::byte*>(output.data()), output.size(),
      [](void* held) { delete static_cast<std::shared_ptr<const Outcome>*>(held); }, holder);
}

}  // namespace

grpc::ByteBuffer MakeReply(const std::shared_ptr<const Outcome>& outcome, bool replayed,
                           v1::ReportLevel level) {
  alignas(16) char block[4096];  // a report of a few ops
  google::protobuf::Arena arena(block, sizeof(block));
  auto& rest = *google::protobuf::Arena::CreateMessage<v1::ExecuteResponse>(&arena);
  rest.set_replayed(replayed);
  if (level != v1::REPORT_LEVEL_NONE) FillReport(*outcome, level, rest.mutable_report());
  const size_t bytes = rest.ByteSizeLong();

  std::vector<grpc::Slice> slices;
  slices.reserve(1 + 2 * outcome->outputs.size());
  grpc::Slice head(bytes);
  rest.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(head.begin()));
  slices.push_back(std::move(head));
  for (const auto& output : outcome->outputs) {
    uint8_t prefix[kMostHead];
    uint8_t* end = CodedOutputStream::WriteTagToArray(kOutputsTag, prefix);
    end = CodedOutputStream::WriteVarint64ToArray(output->size(), end);
    slices.emplace_back(prefix, end - prefix);
    if (output->size() > 0) slices.push_back(Shared(outcome, *output));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace gemmd::server
