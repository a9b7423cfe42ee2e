#include "bench/floor/echo_server.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/floor/echo.grpc.pb.h"

namespace gemmd::bench {
namespace {

class EchoStream : public grpc::ServerBidiReactor<echo::Message, echo::Message> {
 public:
  EchoStream() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  echo::Message message_;
};

class SinkStream : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  explicit SinkStream(grpc::ByteBuffer* response) : response_(response) { StartRead(&chunk_); }
  void OnReadDone(bool ok) override {
    if (ok) {
      counted_.set_bytes(counted_.bytes() + static_cast<int64_t>(chunk_.Length()));
      StartRead(&chunk_);
      return;
    }
    bool own_buffer = true;
    Finish(grpc::SerializationTraits<echo::Counted>::Serialize(counted_, response_, &own_buffer));
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer* response_;
  grpc::ByteBuffer chunk_;
  echo::Counted counted_;
};

class Service : public echo::Echo::WithCallbackMethod_Unary<echo::Echo::WithCallbackMethod_Stream<
                    echo::Echo::WithRawCallbackMethod_Sink<echo::Echo::Service>>> {
 public:
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context,
                                  const echo::Message* request, echo::Message* response) override {
    if (request->reply_bytes() > 0) {
      response->mutable_data()->assign(request->reply_bytes(), 'x');
    } else {
      response->set_data(request->data());
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerBidiReactor<echo::Message, echo::Message>* Stream(
      grpc::CallbackServerContext*) override {
    return new EchoStream;
  }
  grpc::ServerReadReactor<grpc::ByteBuffer>* Sink(grpc::CallbackServerContext*,
                                                  grpc::ByteBuffer* response) override {
    return new SinkStream(response);
  }
};

class RunningServer : public EchoServer {
 public:
  explicit RunningServer(const std::string& address) : target_(address) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ != nullptr && !absl::StartsWith(address, "unix")) {
      target_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
    }
  }
  ~RunningServer() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }
  const std::string& target() const override { return target_; }
  bool running() const { return server_ != nullptr; }

 private:
  Service service_;
  std::string target_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<EchoServer>> EchoServer::Start(const std::string& address) {
  auto server = std::make_unique<RunningServer>(address);
  if (!server->running()) return absl::UnavailableError(absl::StrCat("cannot listen on ", address));
  return server;
}

}  // namespace gemmd::bench
