#include "server/service/buffers/buffer_call.h"

#include <utility>

#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "server/service/wire/convert.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

void DescribePublished(const PublishedFacts& facts, v1::Buffer* proto) {
  proto->set_published_name(facts.name);
  proto->set_owner(facts.owner);
  proto->set_content_hash(facts.content_hash);
  proto->set_holders(facts.holders);
  proto->set_current_version(facts.current);
  *proto->mutable_publish_time() = ToProto(facts.published);
  *proto->mutable_last_use_time() = ToProto(facts.last_use);
  if (facts.ttl) *proto->mutable_ttl() = ToProto(*facts.ttl);
}

}  // namespace

absl::StatusOr<BufferRef> ResolveBuffer(Session& session, const std::string& id, Handle& handle) {
  GEMMD_ASSIGN_OR_RETURN(handle, ConvertHandle(id, "buffer_id"));
  return session.FindBuffer(handle);
}

void DescribeBuffer(ServerState& state, const BufferRef& ref, v1::Buffer* proto) {
  const Buffer& buffer = *ref.buffer;
  const BufferSpec& spec = buffer.spec();
  proto->set_size_bytes(spec.size_bytes);
  proto->set_device(buffer.device().name());
  proto->set_memory_kind(ToProto(spec.kind));
  if (spec.dtype) proto->set_dtype(ToProto(*spec.dtype));
  for (int i = 0; i < spec.shape.rank; ++i) proto->add_shape(spec.shape[i]);
  proto->set_label(spec.label);
  if (const auto facts = state.published().FactsOf(buffer)) DescribePublished(*facts, proto);
  proto->set_read_only(ref.read_only());
  const Buffer::UploadState upload = buffer.upload();
  proto->set_committed_bytes(upload.committed_bytes);
  proto->set_upload_offset_bytes(upload.offset_bytes);
  *proto->mutable_create_time() = ToProto(buffer.created());
}

void FillBuffer(ServerState& state, const Handle& handle, const BufferRef& ref, v1::Buffer* proto) {
  proto->set_buffer_id(ToBytes(handle));
  DescribeBuffer(state, ref, proto);
}

absl::Status MakeBuffer(Call& call, Session& session, Device& device, BufferSpec spec,
                        const BufferImport& import, v1::Buffer* response) {
  GEMMD_ASSIGN_OR_RETURN(auto buffer, Buffer::Create(call.tenant(), device, std::move(spec),
                                                     call.state().clock().Now(), import));
  const BufferRef ref{.buffer = std::move(buffer)};
  GEMMD_ASSIGN_OR_RETURN(auto handle, session.AddBuffer(ref));
  FillBuffer(call.state(), handle, ref, response);
  return absl::OkStatus();
}

void NoteTransfer(Call& call, const Buffer& buffer, const char* direction, absl::Time begin,
                  absl::Duration duration, int64_t bytes) {
  const std::string& device = buffer.device().name();
  Metrics& metrics = call.state().metrics();
  metrics.TransferBytes(device, direction, "grpc").Increment(bytes);
  metrics.TransferSeconds(direction).Observe(absl::ToDoubleSeconds(duration));
  if (Timeline& timeline = call.state().timeline(); timeline.on()) {
    timeline.Add({.kind = TimelineEvent::Kind::kTransfer,
                  .begin = begin,
                  .duration = duration,
                  .device = device,
                  .tenant = call.tenant().name(),
                  .name = call.method().name(),
                  .bytes = bytes});
  }
  if (!call.sampled()) return;
  call.AddPart({.kind = SpanPart::Kind::kTransfer,
                .begin = begin,
                .duration = duration,
                .device = device,
                .bytes = bytes});
}

}  // namespace gemmd::server
