#include "absl/time/clock.h"
#include "tests/client/cpp/fake_reason.h"
#include "tests/client/cpp/fake_state.h"

namespace gemmd::client {
namespace {

class Sessions final : public v1::SessionService::Service {
 public:
  explicit Sessions(FakeState& state) : state_(state) {}

  grpc::Status OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest* request,
                           v1::OpenSessionResponse* response) override {
    return state_.Serve("OpenSession", context, [&] {
      response->set_session_id(state_.NewId());
      response->set_device(request->device().empty() ? "cpu:0" : request->device());
      response->set_name("s-1");
      const int64_t ttl_ns = request->has_ttl()
                                 ? request->ttl().seconds() * 1000000000 + request->ttl().nanos()
                                 : absl::ToInt64Nanoseconds(state_.options.ttl);
      response->mutable_ttl()->set_seconds(ttl_ns / 1000000000);
      response->mutable_ttl()->set_nanos(static_cast<int32_t>(ttl_ns % 1000000000));
      state_.sessions.insert(response->session_id());
      return absl::OkStatus();
    });
  }

  grpc::Status KeepAlive(grpc::ServerContext* context, const v1::KeepAliveRequest* request,
                         v1::KeepAliveResponse* response) override {
    return state_.Serve("KeepAlive", context, [&]() -> absl::Status {
      if (!state_.sessions.contains(request->session_id())) return Gone("session");
      response->mutable_expire_time()->set_seconds(1234);
      return absl::OkStatus();
    });
  }

  grpc::Status CloseSession(grpc::ServerContext* context, const v1::CloseSessionRequest* request,
                            v1::CloseSessionResponse* response) override {
    return state_.Serve("CloseSession", context, [&]() -> absl::Status {
      if (state_.sessions.erase(request->session_id()) == 0) return Gone("session");
      response->set_freed_buffers(static_cast<int64_t>(state_.buffers.size()));
      for (const auto& [id, buffer] : state_.buffers) {
        response->set_freed_bytes(response->freed_bytes() + buffer.info.size_bytes());
      }
      state_.buffers.clear();
      state_.plans.clear();
      return absl::OkStatus();
    });
  }

  grpc::Status Hold(grpc::ServerContext* context, const v1::HoldRequest* request,
                    grpc::ServerWriter<v1::HoldEvent>* stream) override {
    v1::HoldEvent event;
    event.set_kind(v1::HoldEvent::KIND_HELD);
    int generation;
    {
      absl::MutexLock lock(&state_.mu);
      const std::optional<Failure> failure = state_.Begin("Hold", context);
      if (failure) return ToGrpc(failure->status, context);
      if (!state_.sessions.contains(request->session_id())) return ToGrpc(Gone("session"), context);
      generation = state_.hold_generation;
      ++state_.holds;
    }
    stream->Write(event);
    absl::MutexLock lock(&state_.mu);
    while (!context->IsCancelled() && !state_.stopping && generation == state_.hold_generation) {
      if (state_.drain) {
        event.set_kind(v1::HoldEvent::KIND_DRAINING);
        event.mutable_deadline()->set_seconds(absl::ToUnixSeconds(*state_.drain));
        state_.drain.reset();
        stream->Write(event);
      }
      state_.mu.AwaitWithTimeout(absl::Condition(&state_.stopping), absl::Milliseconds(2));
    }
    --state_.holds;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  }

  grpc::Status ListSessions(grpc::ServerContext* context, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* response) override {
    // Three pages of two.
    return state_.Serve("ListSessions", context, [&] {
      const int page = request->page_token().empty() ? 0 : std::stoi(request->page_token());
      for (int i = 0; i < 2; ++i) {
        response->add_sessions()->set_name("s-" + std::to_string(2 * page + i));
      }
      if (page < 2) response->set_next_page_token(std::to_string(page + 1));
      return absl::OkStatus();
    });
  }

 private:
  FakeState& state_;
};

class Devices final : public v1::DeviceService::Service {
 public:
  explicit Devices(FakeState& state) : state_(state) {}

  grpc::Status GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* response) override {
    return state_.Serve("GetServerInfo", context, [&] {
      response->set_version("0.1.0");
      response->set_tenant("default");
      if (state_.share) response->set_share_socket(state_.share->address());
      return absl::OkStatus();
    });
  }

  grpc::Status ListDevices(grpc::ServerContext* context, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* response) override {
    return state_.Serve("ListDevices", context, [&] {
      response->add_devices()->set_name("cpu:0");
      return absl::OkStatus();
    });
  }

  grpc::Status ListKernels(grpc::ServerContext* context, const v1::ListKernelsRequest* request,
                           v1::ListKernelsResponse* response) override {
    return state_.Serve("ListKernels", context, [&] {
      v1::Kernel* kernel = response->add_kernels();
      kernel->set_device(request->device());
      kernel->set_name("cpu_f32");
      return absl::OkStatus();
    });
  }

 private:
  FakeState& state_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeFakeSessions(FakeState& state) {
  return std::make_unique<Sessions>(state);
}

std::unique_ptr<grpc::Service> MakeFakeDevices(FakeState& state) {
  return std::make_unique<Devices>(state);
}

}  // namespace gemmd::client
