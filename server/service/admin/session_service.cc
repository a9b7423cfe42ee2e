#include <memory>
#include <utility>

#include "gemmd/v1/session_service.grpc.pb.h"
#include "server/service/admin/hold.h"
#include "server/service/services.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/page.h"
#include "server/service/wire/rpcs.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::Status OpenSession(Call& call, const v1::OpenSessionRequest& request,
                         v1::OpenSessionResponse* response) {
  GEMMD_RETURN_IF_ERROR(call.state().CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(auto device, call.state().FindDevice(request.device()));
  SessionStore::OpenOptions options{
      .label = request.label(), .peer = call.PeerName(), .device = device};
  if (request.has_ttl()) options.ttl = FromProto(request.ttl());
  if (request.has_grace()) options.grace = FromProto(request.grace());
  GEMMD_ASSIGN_OR_RETURN(auto session,
                         call.state().sessions().Open(call.tenant(), std::move(options)));
  response->set_session_id(ToBytes(session->handle()));
  *response->mutable_expire_time() = ToProto(session->expiry());
  *response->mutable_ttl() = ToProto(session->options().ttl);
  response->set_device(device->name());
  response->set_name(session->name());
  return absl::OkStatus();
}

absl::Status KeepAlive(Call& call, const v1::KeepAliveRequest& request,
                       v1::KeepAliveResponse* response) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  if (const absl::Time expiry = use->expiry(); expiry != absl::InfiniteFuture()) {
    *response->mutable_expire_time() = ToProto(expiry);
  }
  return absl::OkStatus();
}

void CloseSession(std::shared_ptr<PendingCall<v1::CloseSessionResponse>> call,
                  const v1::CloseSessionRequest& request) {
  ServerState& state = call->call().state();
  auto use = call->call().UseSession(request.session_id());
  if (!use.ok()) return call->Finish(use.status());
  // The answer comes when the session's last program has finished, from whichever thread that is
  // on.
  Session& session = **use;
  const bool ended = state.sessions().End(session, EndCause::kClosed, [call](Session::Freed freed) {
    call->response()->set_freed_buffers(freed.buffers);
    call->response()->set_freed_bytes(freed.bytes);
    call->Finish(absl::OkStatus());
  });
  // Another Close, or the expiry, came between.
  if (!ended) call->Finish(session.Use(state.clock().Now()).status());
  *use = SessionUse();
}

absl::Status ListSessions(Call& call, const v1::ListSessionsRequest& request,
                          v1::ListSessionsResponse* response) {
  GEMMD_ASSIGN_OR_RETURN(auto page, ConvertPage(request.page_size(), request.page_token()));
  const Tenant* tenant = call.role() == Role::kUser ? &call.tenant() : nullptr;
  const auto sessions = call.state().sessions().List(tenant);
  const int64_t total = static_cast<int64_t>(sessions.size());
  for (int64_t i = page.skip; i < total && i < page.skip + page.size; ++i) {
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
  response->set_next_page_token(NextToken(page, total));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionService(ServiceContext& context) {
  auto rpcs = std::make_unique<Rpcs<v1::SessionService>>(context);
  rpcs->Serve(OpenSession);
  rpcs->Serve(KeepAlive);
  rpcs->Serve(CloseSession);
  rpcs->Serve(ListSessions);
  rpcs->ServeWriter<v1::HoldRequest, v1::HoldEvent>(ServeHold);
  return rpcs;
}

}  // namespace gemmd::server
