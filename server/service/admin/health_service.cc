#include "server/service/admin/health_service.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/support/slice.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/service/wire/status.h"

namespace gemmd::server {
namespace {

constexpr char kCheckMethod[] = "/grpc.health.v1.Health/Check";
constexpr char kWatchMethod[] = "/grpc.health.v1.Health/Watch";
// HealthCheckRequest { string service = 1; }, HealthCheckResponse { ServingStatus status = 1; }
constexpr uint32_t kServiceTag = 0x0a;
constexpr char kStatusTag = 0x08;
constexpr size_t kMaxNameBytes = 200;

// Nothing for bytes that are not a HealthCheckRequest.
std::optional<std::string> ServiceOf(const grpc::ByteBuffer& request) {
  if (request.Length() > 2 * kMaxNameBytes) return std::nullopt;
  grpc::Slice slice;
  if (!request.DumpToSingleSlice(&slice).ok()) return std::nullopt;
  google::protobuf::io::CodedInputStream input(slice.begin(), static_cast<int>(slice.size()));
  std::string name;
  while (const uint32_t tag = input.ReadTag()) {
    uint32_t bytes = 0;
    if (tag != kServiceTag || !input.ReadVarint32(&bytes) || bytes > kMaxNameBytes ||
        !input.ReadString(&name, static_cast<int>(bytes))) {
      return std::nullopt;
    }
  }
  if (!input.ConsumedEntireMessage()) return std::nullopt;
  return name;
}

grpc::ByteBuffer Response(int status) {
  const char bytes[] = {kStatusTag, static_cast<char>(status)};
  const grpc::Slice slice(bytes, sizeof(bytes));
  return grpc::ByteBuffer(&slice, 1);
}

grpc::Status NoRequest() {
  return {grpc::StatusCode::INVALID_ARGUMENT,
          absl::StrCat("the message is not a HealthCheckRequest whose service has at most ",
                       kMaxNameBytes, " bytes; build it from grpc/health/v1/health.proto")};
}

}  // namespace

// Deletes itself, by its own reference, when the call is over.
class HealthService::Watch final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  Watch(HealthService& service, std::string name, std::string connection)
      : service_(service), name_(std::move(name)), connection_(std::move(connection)) {}

  void Keep(std::shared_ptr<Watch> self) { self_ = std::move(self); }
  const std::string& name() const { return name_; }
  const std::string& connection() const { return connection_; }

  // Sends what the name's status is now, unless that was sent last.
  void Tell() {
    absl::MutexLock lock(&mutex_);
    if (writing_) {
      again_ = true;
    } else {
      Write();
    }
  }

  void End(const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(ended_, true)) Finish(status);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End({grpc::StatusCode::CANCELLED, "the watcher has gone"});
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (std::exchange(again_, false)) Write();
  }
  void OnCancel() override { End({grpc::StatusCode::CANCELLED, "the watch was cancelled"}); }
  void OnDone() override {
    service_.Remove(self_);
    self_.reset();
  }

 private:
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // Looked at under the lock: of two changes the later one is told last.
    const int status = service_.StatusOf(name_);
    if (ended_ || status == sent_) return;
    writing_ = true;
    sent_ = status;
    message_ = Response(status);
    StartWrite(&message_);
  }

  HealthService& service_;
  const std::string name_;
  const std::string connection_;
  std::shared_ptr<Watch> self_;  // shared with those who are about to tell it something
  // Held over StartWrite and Finish, which call nothing back in this thread: no write may follow
  // the end.
  absl::Mutex mutex_;
  grpc::ByteBuffer message_ ABSL_GUARDED_BY(mutex_);
  int sent_ ABSL_GUARDED_BY(mutex_) = 0;
  bool again_ ABSL_GUARDED_BY(mutex_) = false;  // it changed during a write
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class HealthService::Refused final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit Refused(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

HealthService::HealthService() {
  using grpc::internal::RpcMethod;
  using grpc::internal::RpcServiceMethod;
  AddMethod(new RpcServiceMethod(kCheckMethod, RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodCallback(
      0, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
             [this](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                    grpc::ByteBuffer* response) { return Check(context, request, response); }));
  AddMethod(new RpcServiceMethod(kWatchMethod, RpcMethod::SERVER_STREAMING, nullptr));
  MarkMethodCallback(
      1, new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
             [this](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
               return StartWatch(context, request);
             }));
}

HealthService::~HealthService() = default;

HealthService::Status HealthService::StatusOf(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  const auto found = serving_.find(name);
  if (found == serving_.end()) return kUnknownService;
  return found->second ? kServing : kNotServing;
}

void HealthService::Set(const std::string& name, bool serving) {
  std::vector<std::shared_ptr<Watch>> told;
  {
    absl::MutexLock lock(&mutex_);
    const auto [entry, added] = serving_.try_emplace(name, serving);
    if (!added && entry->second == serving) return;
    entry->second = serving;
    for (const auto& watch : watches_) {
      if (watch->name() == name) told.push_back(watch);
    }
  }
  for (const auto& watch : told) watch->Tell();
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::optional<std::string> name = ServiceOf(*request);
  const Status status = name ? StatusOf(*name) : kUnknownService;
  if (!name) {
    reactor->Finish(NoRequest());
  } else if (status == kUnknownService) {
    reactor->Finish({grpc::StatusCode::NOT_FOUND,
                     "no such service; ask for \"\", \"gemmd.v1\" or a device's name"});
  } else {
    *response = Response(status);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::StartWatch(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  std::optional<std::string> name = ServiceOf(*request);
  if (!name) return new Refused(NoRequest());
  const auto watch = std::make_shared<Watch>(*this, *std::move(name), context->peer());
  if (absl::Status added = Add(watch); !added.ok()) return new Refused(ToGrpc(added));
  watch->Keep(watch);
  watch->Tell();
  return watch.get();
}

absl::Status HealthService::Add(const std::shared_ptr<Watch>& watch) {
  absl::MutexLock lock(&mutex_);
  int& of_connection = watches_of_[watch->connection()];
  const bool all = static_cast<int>(watches_.size()) >= kMaxWatches;
  if (all || of_connection >= kMaxWatchesOfConnection) {
    const int limit = all ? kMaxWatches : kMaxWatchesOfConnection;
    if (of_connection == 0) watches_of_.erase(watch->connection());
    return absl::ResourceExhaustedError(absl::StrCat(
        limit, " health watches are open ", all ? "at this listener" : "on this connection",
        ", which is the limit; end one, or use Check"));
  }
  ++of_connection;
  watches_.insert(watch);
  return absl::OkStatus();
}

void HealthService::Remove(const std::shared_ptr<Watch>& watch) {
  absl::MutexLock lock(&mutex_);
  watches_.erase(watch);
  const auto of_connection = watches_of_.find(watch->connection());
  if (--of_connection->second == 0) watches_of_.erase(of_connection);
}

}  // namespace gemmd::server
