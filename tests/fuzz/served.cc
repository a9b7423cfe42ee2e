#include "tests/fuzz/served.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "google/protobuf/descriptor.h"
#include "server/config/load.h"

namespace gemmd::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "served: %s\n", what.c_str());
  std::abort();
}

void MustBeOk(const grpc::Status& status, const char* what) {
  if (!status.ok()) Die(std::string(what) + ": " + status.error_message());
}

// Small quotas: a fuzzer soon finds them, and cannot make the process large.
constexpr char kConfig[] = R"(
  devices { name: "cpu:0" threads: 1 memory_bytes: 67108864 }
  limits { max_ops: 64 max_inline_bytes: 262144 max_sessions: 16 max_buffers: 64
           max_buffer_bytes: 33554432 max_plans: 8 max_queued_programs: 64 max_streams: 16
           window_batches: 8 window_bytes: 262144 idempotency_entries: 4 }
  session { min_ttl_ms: 1000 max_ttl_ms: 3600000 default_ttl_ms: 3600000 default_grace_ms: 10 }
  log { level: LEVEL_ERROR }
)";

}  // namespace

Served& Served::Get() {
  static Served* served = new Served();  // its threads run to the end of the process
  return *served;
}

Served::Served() {
  // Abstract: nothing to clean up when the fuzzer dies.
  const std::string address = "unix-abstract:gemmd-fuzz-" + std::to_string(getpid());
  auto config = server::ParseConfig(kConfig, {address});
  if (!config.ok()) Die(config.status().ToString());
  auto started = server::Server::Start(*config);
  if (!started.ok()) Die(started.status().ToString());
  server_ = *std::move(started);
  channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  sessions_ = v1::SessionService::NewStub(channel_);
  buffers_ = v1::BufferService::NewStub(channel_);
  compute_ = v1::ComputeService::NewStub(channel_);
  devices_ = v1::DeviceService::NewStub(channel_);
  admin_ = v1::AdminService::NewStub(channel_);
  OpenSession();
}

std::unique_ptr<grpc::ClientContext> Served::Context() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  return context;
}

void Served::OpenSession() {
  v1::OpenSessionResponse opened;
  MustBeOk(sessions_->OpenSession(Context().get(), v1::OpenSessionRequest(), &opened), "open");
  session_ = opened.session_id();

  struct Kind {
    int64_t size;
    v1::DType dtype;
    std::vector<int64_t> shape;
    v1::MemoryKind memory;
  };
  const v1::MemoryKind device = v1::MEMORY_KIND_DEVICE;
  const std::vector<Kind> kinds = {{65536, v1::DTYPE_UNSPECIFIED, {}, device},
                                   {65536, v1::DTYPE_UNSPECIFIED, {}, device},
                                   {65536, v1::DTYPE_UNSPECIFIED, {}, device},
                                   {0, v1::DTYPE_F32, {64, 64}, device},
                                   {0, v1::DTYPE_E4M3, {64, 256}, device},
                                   {0, v1::DTYPE_BF16, {3, 32, 32}, device},
                                   {4, v1::DTYPE_UNSPECIFIED, {}, device},
                                   {65536, v1::DTYPE_UNSPECIFIED, {}, v1::MEMORY_KIND_HOST_SHARED},
                                   {65536, v1::DTYPE_UNSPECIFIED, {}, device}};
  buffers_by_digit_.clear();
  for (const Kind& kind : kinds) {
    v1::CreateBufferRequest request;
    request.set_session_id(session_);
    request.set_size_bytes(kind.size);
    request.set_dtype(kind.dtype);
    request.mutable_shape()->Add(kind.shape.begin(), kind.shape.end());
    request.set_memory_kind(kind.memory);
    v1::Buffer buffer;
    MustBeOk(buffers_->CreateBuffer(Context().get(), request, &buffer), "create");
    buffers_by_digit_.push_back(buffer.buffer_id());
  }
  v1::ListPublishedResponse earlier;  // what another input has published
  MustBeOk(buffers_->ListPublished(Context().get(), {}, &earlier), "list");
  for (const v1::Buffer& buffer : earlier.buffers()) {
    v1::UnpublishBufferRequest unpublish;
    unpublish.set_session_id(session_);
    unpublish.set_name(buffer.published_name());
    v1::UnpublishBufferResponse unpublished;
    MustBeOk(buffers_->UnpublishBuffer(Context().get(), unpublish, &unpublished), "unpublish");
  }
  v1::PublishBufferRequest publish;
  publish.set_session_id(session_);
  publish.set_buffer_id(buffers_by_digit_.back());
  publish.set_name("fuzz");
  v1::PublishBufferResponse published;
  MustBeOk(buffers_->PublishBuffer(Context().get(), publish, &published), "publish");
  buffers_by_digit_.push_back(std::string(16, '\x7e'));

  v1::CreatePlanRequest plan;
  plan.set_session_id(session_);
  v1::Write& write = *plan.add_ops()->mutable_write();
  write.mutable_dst()->set_buffer_id(buffers_by_digit_[0]);
  write.mutable_dst()->set_dtype(v1::DTYPE_F32);
  write.mutable_dst()->add_shape(4);
  write.set_data(std::string(16, '\0'));
  v1::Plan made;
  MustBeOk(compute_->CreatePlan(Context().get(), plan, &made), "plan");
  plan_ = made.plan_id();
}

void Served::Restore() {
  v1::KeepAliveRequest alive;
  alive.set_session_id(session_);
  v1::KeepAliveResponse expiry;
  v1::CloseSessionRequest close;
  close.set_session_id(session_);
  v1::CloseSessionResponse closed;
  if (sessions_->KeepAlive(Context().get(), alive, &expiry).ok()) {
    // A queue that held the session may have been cut long enough ago for it to end just now.
    const grpc::Status status = sessions_->CloseSession(Context().get(), close, &closed);
    if (status.error_code() != grpc::StatusCode::NOT_FOUND) MustBeOk(status, "close");
  }
  OpenSession();
}

void Served::Bind(Message& message) const {
  const Reflection& r = *message.GetReflection();
  const auto& descriptor = *message.GetDescriptor();
  const auto handle = [&](const FieldDescriptor& field, const std::string& now) {
    const std::string& name = field.name();
    if (absl::EndsWith(name, "session_id") && now.empty()) return session_;
    if (now.size() != 1 || now[0] < '0' || now[0] > '9') return now;
    if (absl::EndsWith(name, "session_id")) return session_;
    if (absl::EndsWith(name, "plan_id")) return plan_;
    if (absl::StrContains(name, "buffer_id")) return buffers_by_digit_[now[0] - '0'];
    return now;
  };
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const bool message_field = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!message_field && field.type() != FieldDescriptor::TYPE_BYTES) continue;
    if (!field.is_repeated()) {
      if (!message_field) {
        r.SetString(&message, &field, handle(field, r.GetString(message, &field)));
      } else if (r.HasField(message, &field)) {
        Bind(*r.MutableMessage(&message, &field));
      }
      continue;
    }
    for (int j = 0; j < r.FieldSize(message, &field); ++j) {
      if (message_field) {
        Bind(*r.MutableRepeatedMessage(&message, &field, j));
      } else {
        r.SetRepeatedString(&message, &field, j,
                            handle(field, r.GetRepeatedString(message, &field, j)));
      }
    }
  }
}

void Served::Judge(const grpc::Status& status) const {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return;
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::UNAVAILABLE:
      Die("code " + std::to_string(status.error_code()) + ": " + status.error_message());
    default:
      if (status.error_message().empty()) {
        Die("code " + std::to_string(status.error_code()) + " without a message");
      }
  }
}

void Served::Check() {
  if (++checks_ % 64 != 0) return;
  v1::ExecuteRequest request;
  request.set_session_id(session_);
  const auto tensor = [&](v1::Tensor* tensor, int64_t offset) {
    tensor->set_buffer_id(buffers_by_digit_[0]);
    tensor->set_dtype(v1::DTYPE_F32);
    tensor->set_offset_bytes(offset);
    tensor->add_shape(1);
    tensor->add_shape(1);
  };
  for (int i = 0; i < 2; ++i) {
    v1::Fill& fill = *request.add_ops()->mutable_fill();
    tensor(fill.mutable_dst(), 256 * i);
    fill.set_value(3 + i);
  }
  v1::Matmul& matmul = *request.add_ops()->mutable_matmul();
  tensor(matmul.mutable_a()->mutable_values(), 0);
  tensor(matmul.mutable_b()->mutable_values(), 256);
  tensor(matmul.mutable_d(), 512);
  tensor(request.add_ops()->mutable_read()->mutable_src(), 512);
  v1::ExecuteResponse response;
  MustBeOk(compute_->Execute(Context().get(), request, &response), "check");
  const float twelve = 12;
  if (response.outputs_size() != 1 ||
      response.outputs(0) != std::string(reinterpret_cast<const char*>(&twelve), 4)) {
    Die("3 * 4 is not 12 any more");
  }
}

}  // namespace gemmd::fuzz
