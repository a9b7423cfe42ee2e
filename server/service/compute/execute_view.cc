#include "server/service/compute/execute_view.h"

#include <google/protobuf/io/coded_stream.h>

#include "gemmd/v1/wire.h"
#include "server/engine/sessions/recent_programs.h"

namespace gemmd::server {
namespace {

using google::protobuf::io::CodedInputStream;
using v1::ExecuteRequest;

// The next field's bytes, skipped; nothing when they end too early.
std::optional<std::string_view> TakeBytes(std::string_view bytes, CodedInputStream& in) {
  uint32_t size = 0;
  if (!in.ReadVarint32(&size)) return std::nullopt;
  const auto at = static_cast<size_t>(in.CurrentPosition());
  if (size > bytes.size() - at) return std::nullopt;
  in.Skip(static_cast<int>(size));
  return bytes.substr(at, size);
}

// An empty op is none that is known; protobuf says so.
bool MayRunAgain(std::string_view op, ExecuteView::Data data) {
  if (op.empty()) return false;
  return data == ExecuteView::Data::kTakenOut ||
         static_cast<uint8_t>(op.front()) != wire::Tag(v1::Op::kWriteFieldNumber, wire::kBytes);
}

template <typename Enum>
bool TakeEnum(CodedInputStream& in, Enum& value) {
  uint32_t number = 0;
  if (!in.ReadVarint32(&number)) return false;
  value = static_cast<Enum>(number);
  return true;
}

}  // namespace

std::optional<ExecuteView> ExecuteView::Of(std::string_view bytes, Data data) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  ExecuteView view;
  uint32_t seen = 0;  // a bit for each field
  size_t ops_end = 0;
  for (;;) {
    const auto begin = static_cast<size_t>(in.CurrentPosition());
    if (begin == bytes.size()) break;
    const uint32_t tag = in.ReadTagNoLastTag();
    const uint32_t bit = 1u << (tag >> 3 & 31);
    const bool first = (seen & bit) == 0;
    seen |= bit;
    switch (tag) {
      case wire::Tag(ExecuteRequest::kOpsFieldNumber, wire::kBytes): {
        const auto op = TakeBytes(bytes, in);
        if (!op || !MayRunAgain(*op, data) || !(first || begin == ops_end)) return std::nullopt;
        ops_end = static_cast<size_t>(in.CurrentPosition());
        const size_t ops_begin =
            first ? begin : static_cast<size_t>(view.ops.data() - bytes.data());
        view.ops = bytes.substr(ops_begin, ops_end - ops_begin);
        continue;
      }
      case wire::Tag(ExecuteRequest::kSessionIdFieldNumber, wire::kBytes):
      case wire::Tag(ExecuteRequest::kOpIdFieldNumber, wire::kBytes): {
        const auto id = TakeBytes(bytes, in);
        if (!id || !first) return std::nullopt;
        (tag >> 3 == ExecuteRequest::kOpIdFieldNumber ? view.op_id : view.session_id) = *id;
        continue;
      }
      case wire::Tag(ExecuteRequest::kPriorityFieldNumber, wire::kVarint):
        if (!first || !TakeEnum(in, view.priority)) return std::nullopt;
        continue;
      case wire::Tag(ExecuteRequest::kReportFieldNumber, wire::kVarint):
        if (!first || !TakeEnum(in, view.report)) return std::nullopt;
        continue;
      default:
        return std::nullopt;
    }
  }
  if (view.ops.empty()) return std::nullopt;
  return view;
}

grpc::Slice SmallRequest(const grpc::ByteBuffer& request) {
  constexpr size_t kMostBytes = RecentPrograms::kMostBytes + 128;  // the other fields
  if (request.Length() > kMostBytes) return grpc::Slice();
  grpc::Slice slice;
  if (request.TrySingleSlice(&slice).ok() || request.DumpToSingleSlice(&slice).ok()) return slice;
  return grpc::Slice();
}

}  // namespace gemmd::server
