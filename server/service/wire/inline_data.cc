#include "server/service/wire/inline_data.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <cstdint>

#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/types.pb.h"
#include "gemmd/v1/wire.h"

namespace gemmd::server {
namespace {

using wire::AppendVarint;
using wire::kBytes;
using wire::kFixed32;
using wire::kFixed64;
using wire::kVarint;
using wire::Tag;

using google::protobuf::io::CodedInputStream;

// The way to the data: the field to follow in a message, and what is inside of it.
struct Way {
  enum class Times { kAny, kOnce, kAlone };  // in its message; alone: with no other field
  int field;
  Times times;
  const Way* inside;  // null: it is the data
};

constexpr Way kData = {v1::Write::kDataFieldNumber, Way::Times::kOnce, nullptr};
constexpr Way kWrite = {v1::Op::kWriteFieldNumber, Way::Times::kAlone, &kData};
constexpr Way kOps = {v1::ExecuteRequest::kOpsFieldNumber, Way::Times::kAny, &kWrite};
constexpr Way kInputs = {v1::PlanRun::kInputsFieldNumber, Way::Times::kAny, nullptr};
constexpr Way kRun = {v1::RunPlanRequest::kRunFieldNumber, Way::Times::kAny, &kInputs};

class Taker {
 public:
  Taker(grpc::ByteBuffer& message, Inputs& data)
      : reader_(&message), in_(&reader_), end_(static_cast<int>(message.Length())), data_(data) {
    in_.SetTotalBytesLimit(end_);
  }

  bool Take(const Way& way, std::string& rest) { return Message(way, end_, rest); }

 private:
  // One message, which ends at `end`, to `rest`.
  bool Message(const Way& way, int end, std::string& rest) {
    int fields = 0, followed = 0;
    for (; in_.CurrentPosition() < end; ++fields) {
      const uint32_t tag = in_.ReadTagNoLastTag();
      const bool follow = tag == Tag(way.field, kBytes);
      followed += follow ? 1 : 0;
      if (tag >> 3 == 0) return false;
      shared_ |= &way == &kData && tag == Tag(v1::Write::kFromFieldNumber, kBytes);
      AppendVarint(rest, tag);
      if (!(follow ? Follow(way, end, rest) : Keep(tag & 7, end, rest))) return false;
    }
    if (in_.CurrentPosition() != end) return false;
    if (followed == 0 || way.times == Way::Times::kAny) return true;
    return followed == 1 && (fields == 1 || way.times == Way::Times::kOnce);
  }

  bool Follow(const Way& way, int end, std::string& rest) {
    uint32_t size = 0;
    if (!TakeSize(end, size)) return false;
    if (way.inside == nullptr) return Data(size, rest);
    std::string inner;
    const size_t before = data_.size();
    shared_ = false;
    if (!Message(*way.inside, in_.CurrentPosition() + static_cast<int>(size), inner)) return false;
    // Without data a Write op would stand behind the wrong one of those that come later, unless it
    // says where else it is.
    if (way.inside == &kData && (data_.size() == before) != shared_) return false;
    AppendVarint(rest, inner.size());
    rest += inner;
    return true;
  }

  bool Data(uint32_t size, std::string& rest) {
    const uint64_t stands_for = size;
    AppendVarint(rest, sizeof(stands_for));
    rest.append(reinterpret_cast<const char*>(&stands_for), sizeof(stands_for));
    kernels::HostBytes& data = data_.emplace_back();
    while (size > 0) {
      const void* run = nullptr;
      int length = 0;
      if (!in_.GetDirectBufferPointer(&run, &length)) return false;
      const uint32_t part = std::min(size, static_cast<uint32_t>(length));
      data.Append(absl::MakeConstSpan(static_cast<const std::byte*>(run), part));
      in_.Skip(static_cast<int>(part));
      size -= part;
    }
    return true;
  }

  // A field's value, as it is.
  bool Keep(uint32_t type, int end, std::string& rest) {
    if (type == kVarint) {
      uint64_t value = 0;
      if (!in_.ReadVarint64(&value)) return false;
      AppendVarint(rest, value);
      return true;
    }
    uint32_t size = type == kFixed64 ? 8 : 4;
    if (type == kBytes) {
      if (!TakeSize(end, size)) return false;
      AppendVarint(rest, size);
    } else if (type != kFixed64 && type != kFixed32) {
      return false;
    }
    const size_t before = rest.size();
    rest.resize(before + size);
    return in_.ReadRaw(rest.data() + before, static_cast<int>(size));
  }

  bool TakeSize(int end, uint32_t& size) {
    return in_.ReadVarint32(&size) &&
           size <= static_cast<uint32_t>(std::max(0, end - in_.CurrentPosition()));
  }

  grpc::ProtoBufferReader reader_;
  CodedInputStream in_;
  const int end_;
  Inputs& data_;
  bool shared_ = false;  // of the Write that was read last: its data lies in shared memory
};

std::shared_ptr<InlineData> TakeData(grpc::ByteBuffer& request, const Way& way) {
  constexpr size_t kMostBytes = 1 << 30;  // positions are ints
  if (!request.Valid() || request.Length() > kMostBytes) return nullptr;
  auto taken = std::make_shared<InlineData>();
  taken->memory.Swap(&request);
  if (Taker(taken->memory, taken->data).Take(way, taken->rest)) return taken;
  taken->memory.Swap(&request);
  return nullptr;
}

}  // namespace

std::shared_ptr<InlineData> TakeExecuteData(grpc::ByteBuffer& request) {
  return TakeData(request, kOps);
}

std::shared_ptr<InlineData> TakeRunPlanData(grpc::ByteBuffer& request) {
  return TakeData(request, kRun);
}

}  // namespace gemmd::server
