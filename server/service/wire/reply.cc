#include "server/service/wire/reply.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <string>
#include <vector>

#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/wire.h"
#include "server/service/wire/report.h"

namespace gemmd::server {
namespace {

using wire::kBytes;
using wire::kVarint;
using wire::Tag;

using google::protobuf::io::CodedOutputStream;

constexpr uint32_t kOutputsTag = Tag(v1::ExecuteResponse::kOutputsFieldNumber, kBytes);
constexpr uint32_t kReplayedTag = Tag(v1::ExecuteResponse::kReplayedFieldNumber, kVarint);
constexpr size_t kMostOfAnOp = 96;  // that a report has of it, with a kernel's usual name
constexpr int kMostHead = 16;       // of an output: its tag and its length

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
  std::string head;
  if (level == v1::REPORT_LEVEL_FULL && outcome->program != nullptr) {
    head.reserve((1 + outcome->program->steps().size()) * kMostOfAnOp);
  }
  {
    google::protobuf::io::StringOutputStream stream(&head);
    CodedOutputStream out(&stream);
    if (replayed) {
      out.WriteTag(kReplayedTag);
      out.WriteVarint32(1);
    }
    if (level != v1::REPORT_LEVEL_NONE) {
      WriteReport(*outcome, level, v1::ExecuteResponse::kReportFieldNumber, out);
    }
  }

  std::vector<grpc::Slice> slices;
  slices.reserve(1 + 2 * outcome->outputs.size());
  slices.emplace_back(head);
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
