#include "tests/client/cli/lying_server.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gemmd/v1/admin_service.pb.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/device_service.pb.h"
#include "gemmd/v1/session_service.pb.h"

namespace gemmd::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kDeepest = 6;
constexpr char kId[] = "0123456789abcdef";  // 16 bytes, as handles have
constexpr char kServing[] = "\x08\x01";     // a HealthCheckResponse

// Puts `lie` into every string, sixteen bytes into every `bytes`, 1 into every number, and one
// element into every list.
void Fill(Message& message, const std::string& lie, int depth = 0) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    // A page after the last one would be asked for again and again.
    if (field->is_map() || field->name() == "next_page_token") continue;
    if (field->real_containing_oneof() != nullptr) continue;
    const bool list = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string value = field->type() == FieldDescriptor::TYPE_BYTES ? kId : lie;
        list ? reflection.AddString(&message, field, value)
             : reflection.SetString(&message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_INT64:
        list ? reflection.AddInt64(&message, field, 1) : reflection.SetInt64(&message, field, 1);
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (depth == kDeepest) break;
        Fill(list ? *reflection.AddMessage(&message, field)
                  : *reflection.MutableMessage(&message, field),
             lie, depth + 1);
        break;
      default:
        break;
    }
  }
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// One message in, one out, whatever the method streams.
class Answer : public grpc::ServerGenericBidiReactor {
 public:
  Answer(grpc::Status status, const std::string& bytes)
      : status_(std::move(status)), response_(ToBuffer(bytes)) {
    StartRead(&request_);
  }
  void OnReadDone(bool) override {
    if (status_.ok()) {
      StartWriteAndFinish(&response_, grpc::WriteOptions(), status_);
    } else {
      Finish(status_);
    }
  }
  void OnDone() override { delete this; }

 private:
  const grpc::Status status_;
  grpc::ByteBuffer request_, response_;
};

}  // namespace

class LyingServer::Service : public grpc::CallbackGenericService {
 public:
  // Each service's file has to be linked for its methods to be known.
  Service(const std::string& lie, bool refuses) : lie_(lie), refuses_(refuses) {
    v1::LogSettings::descriptor();
    v1::Buffer::descriptor();
    v1::ExplainResponse::descriptor();
    v1::ServerInfo::descriptor();
    v1::SessionInfo::descriptor();
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const std::string method = context->method();  // "/gemmd.v1.DeviceService/ListDevices"
    if (absl::StartsWith(method, "/grpc.health.v1.Health/")) {
      return new Answer(grpc::Status::OK, std::string(kServing, 2));
    }
    const std::string name = absl::StrReplaceAll(method.substr(1), {{"/", "."}});
    const auto* known = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
    if (known == nullptr) {
      return new Answer(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, lie_), "");
    }
    if (refuses_) {
      context->AddTrailingMetadata("gemmd-reason", "LIE");
      return new Answer(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, lie_), "");
    }
    const std::unique_ptr<Message> response(google::protobuf::MessageFactory::generated_factory()
                                                ->GetPrototype(known->output_type())
                                                ->New());
    Fill(*response, lie_);
    return new Answer(grpc::Status::OK, response->SerializeAsString());
  }

 private:
  const std::string lie_;
  const bool refuses_;
};

LyingServer::LyingServer(const std::string& lie, bool refuses)
    : service_(std::make_unique<Service>(lie, refuses)) {
  static std::atomic<int> count = 0;
  target_ = absl::StrCat("unix-abstract:gemmd-lying-", getpid(), "-", count++);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(target_, grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
}

LyingServer::~LyingServer() { server_->Shutdown(std::chrono::system_clock::now()); }

}  // namespace gemmd::cli
