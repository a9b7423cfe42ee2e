#include "server/service/session_service.h"

#include <memory>
#include <utility>

#include "server/service/convert.h"
#include "server/service/hold.h"
#include "server/service/page.h"

namespace gemmd::server {

SessionService::SessionService(ServiceContext& context, StreamRegistry& streams)
    : streams_(streams),
      open_(context, "OpenSession"),
      keep_alive_(context, "KeepAlive"),
      close_(context, "CloseSession"),
      hold_(context, "Hold"),
      list_(context, "ListSessions") {}

grpc::ServerUnaryReactor* SessionService::OpenSession(grpc::CallbackServerContext* context,
                                                      const v1::OpenSessionRequest* request,
                                                      v1::OpenSessionResponse* response) {
  return Unary(open_, context, [&](Call& call) -> absl::Status {
    if (absl::Status open = call.state().CheckOpen(); !open.ok()) return open;
    auto device = call.state().FindDevice(request->device());
    if (!device.ok()) return device.status();
    SessionStore::OpenOptions options{
        .label = request->label(), .peer = call.PeerName(), .device = *device};
    if (request->has_ttl()) options.ttl = FromProto(request->ttl());
    if (request->has_grace()) options.grace = FromProto(request->grace());
    auto session = call.state().sessions().Open(call.tenant(), std::move(options));
    if (!session.ok()) return session.status();
    response->set_session_id(ToBytes((*session)->handle()));
    *response->mutable_expire_time() = ToProto((*session)->expiry());
    *response->mutable_ttl() = ToProto((*session)->options().ttl);
    response->set_device((*device)->name());
    response->set_name((*session)->name());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SessionService::KeepAlive(grpc::CallbackServerContext* context,
                                                    const v1::KeepAliveRequest* request,
                                                    v1::KeepAliveResponse* response) {
  return Unary(keep_alive_, context, [&](Call& call) -> absl::Status {
    auto use = call.state().sessions().Use(call.tenant(), request->session_id());
    if (!use.ok()) return use.status();
    if (const absl::Time expiry = (*use)->expiry(); expiry != absl::InfiniteFuture()) {
      *response->mutable_expire_time() = ToProto(expiry);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* SessionService::CloseSession(grpc::CallbackServerContext* context,
                                                       const v1::CloseSessionRequest* request,
                                                       v1::CloseSessionResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto call = std::make_unique<Call>(close_, context);
  ServerState& state = call->state();
  if (!call->admission().ok()) {
    reactor->Finish(call->Finish(call->admission()));
    return reactor;
  }
  auto use = state.sessions().Use(call->tenant(), request->session_id());
  if (!use.ok()) {
    reactor->Finish(call->Finish(use.status()));
    return reactor;
  }
  // The answer comes when the session's last program has finished, from whichever thread that is
  // on.
  Session& session = **use;
  auto shared = std::make_shared<std::unique_ptr<Call>>(std::move(call));
  const bool ended = state.sessions().End(session, EndCause::kClosed,
                                          [reactor, response, shared](Session::Freed freed) {
                                            response->set_freed_buffers(freed.buffers);
                                            response->set_freed_bytes(freed.bytes);
                                            reactor->Finish((*shared)->Finish(absl::OkStatus()));
                                            shared->reset();
                                          });
  if (!ended) {
    // Another Close, or the expiry, came between.
    const absl::Status gone = session.Use(state.clock().Now()).status();
    reactor->Finish((*shared)->Finish(gone));
    shared->reset();
  }
  *use = SessionUse();
  return reactor;
}

grpc::ServerWriteReactor<v1::HoldEvent>* SessionService::Hold(grpc::CallbackServerContext* context,
                                                              const v1::HoldRequest* request) {
  return HoldStream::Start(hold_, streams_, context, *request);
}

grpc::ServerUnaryReactor* SessionService::ListSessions(grpc::CallbackServerContext* context,
                                                       const v1::ListSessionsRequest* request,
                                                       v1::ListSessionsResponse* response) {
  return Unary(list_, context, [&](Call& call) -> absl::Status {
    auto page = ConvertPage(request->page_size(), request->page_token());
    if (!page.ok()) return page.status();
    const Tenant* tenant = call.role() == Role::kUser ? &call.tenant() : nullptr;
    const auto sessions = call.state().sessions().List(tenant);
    const int64_t total = static_cast<int64_t>(sessions.size());
    for (int64_t i = page->skip; i < total && i < page->skip + page->size; ++i) {
      const Session& session = *sessions[i];
      const Session::Stats stats = session.stats();
      v1::SessionInfo* info = response->add_sessions();
      info->set_name(session.name());
      info->set_label(session.options().label);
      info->set_tenant(session.tenant().name());
      info->set_device(session.options().device->name());
      *info->mutable_create_time() = ToProto(stats.created);
      if (!stats.held) *info->mutable_expire_time() = ToProto(stats.expiry);
      info->set_held(stats.held);
      info->set_buffers(stats.buffers);
      info->set_buffer_bytes(stats.buffer_bytes);
      info->set_plans(stats.plans);
      info->set_queued_programs(stats.queued_programs);
      info->set_device_seconds(stats.device_seconds);
      info->set_peer(session.options().peer);
    }
    response->set_next_page_token(NextToken(*page, total));
    return absl::OkStatus();
  });
}

}  // namespace gemmd::server
