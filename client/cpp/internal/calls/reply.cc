#include "client/cpp/internal/calls/reply.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <cstring>

namespace gemmd::client {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using v1::ExecuteResponse;

constexpr uint32_t BytesTag(int field) { return static_cast<uint32_t>(field) << 3 | 2; }
constexpr uint32_t VarintTag(int field) { return static_cast<uint32_t>(field) << 3; }

bool ReadBytes(CodedInputStream& in, ReplyBytes& bytes) {
  uint32_t left = 0;
  if (!in.ReadVarint32(&left)) return false;
  while (left > 0) {
    const void* run = nullptr;
    int length = 0;
    if (!in.GetDirectBufferPointer(&run, &length)) return false;
    const uint32_t part = std::min(left, static_cast<uint32_t>(length));
    bytes.Append({static_cast<const char*>(run), part});
    in.Skip(static_cast<int>(part));
    left -= part;
  }
  return true;
}

bool ReadFields(CodedInputStream& in, Reply& reply) {
  while (const uint32_t tag = in.ReadTag()) {
    bool read = false;
    if (tag == BytesTag(ExecuteResponse::kOutputsFieldNumber)) {
      read = ReadBytes(in, reply.outputs.emplace_back());
    } else if (tag == BytesTag(ExecuteResponse::kReportFieldNumber)) {
      read = ReadBytes(in, reply.report_bytes);
    } else if (tag == VarintTag(ExecuteResponse::kReplayedFieldNumber)) {
      uint64_t value = 0;
      read = in.ReadVarint64(&value);
      reply.replayed = value != 0;
    } else {
      read = WireFormatLite::SkipField(&in, tag);  // of a newer server
    }
    if (!read) return false;
  }
  return in.ConsumedEntireMessage();
}

}  // namespace

void ReplyBytes::Append(absl::string_view run) {
  if (run.empty()) return;
  runs_.push_back(run);
  size_ += run.size();
}

void ReplyBytes::CopyTo(char* target) const {
  for (const absl::string_view run : runs_) {
    std::memcpy(target, run.data(), run.size());
    target += run.size();
  }
}

absl::string_view ReplyBytes::View() const {
  if (runs_.empty()) return "";
  if (runs_.size() == 1) return runs_.front();
  std::call_once(gathered_, [this] {
    whole_.resize(size_);
    CopyTo(whole_.data());
  });
  return whole_;
}

absl::StatusOr<std::unique_ptr<Reply>> Reply::Read(grpc::ByteBuffer bytes) {
  auto reply = std::make_unique<Reply>();
  reply->received.Swap(&bytes);
  bool read = !reply->received.Valid();
  if (!read) {
    grpc::ProtoBufferReader reader(&reply->received);
    CodedInputStream in(&reader);
    read = ReadFields(in, *reply);
  }
  if (read) return reply;
  return absl::InternalError(
      "the answer is no ExecuteResponse; is the server at this address a gemmd?");
}

const v1::ProgramReport& Reply::Report() const {
  std::call_once(decoded_, [this] {
    const absl::string_view bytes = report_bytes.View();
    report_.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
  });
  return report_;
}

std::unique_ptr<Reply> Reply::Of(v1::Completion& completion) {
  auto reply = std::make_unique<Reply>();
  std::call_once(reply->decoded_, [&] { reply->report_.Swap(completion.mutable_report()); });
  reply->parsed.Swap(completion.mutable_outputs());
  for (const std::string& output : reply->parsed) reply->outputs.emplace_back().Append(output);
  return reply;
}

}  // namespace gemmd::client
