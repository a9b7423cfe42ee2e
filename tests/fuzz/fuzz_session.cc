// SessionService, DeviceService and AdminService, in any order.

#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/scripts.pb.h"
#include "tests/fuzz/served.h"

namespace {

using gemmd::fuzz::Served;
using gemmd::fuzz::SessionCall;

// `opened` collects what must be closed again.
grpc::Status Send(Served& served, const SessionCall& call, std::vector<std::string>& opened) {
  auto& stub = served.sessions();
  const auto context = served.Context();
  gemmd::v1::OpenSessionResponse session;
  gemmd::v1::KeepAliveResponse alive;
  gemmd::v1::CloseSessionResponse closed;
  gemmd::v1::ListSessionsResponse sessions;
  gemmd::v1::ListKernelsResponse kernels;
  gemmd::v1::ListDevicesResponse devices;
  gemmd::v1::ServerInfo info;
  gemmd::v1::LogSettings log;
  gemmd::v1::EndSessionResponse ended;
  switch (call.kind_case()) {
    case SessionCall::kOpen: {
      const grpc::Status status = stub.OpenSession(context.get(), call.open(), &session);
      if (status.ok()) opened.push_back(session.session_id());
      return status;
    }
    case SessionCall::kKeepAlive:
      return stub.KeepAlive(context.get(), call.keep_alive(), &alive);
    case SessionCall::kClose:
      return stub.CloseSession(context.get(), call.close(), &closed);
    case SessionCall::kHold: {
      auto reader = stub.Hold(context.get(), call.hold());
      gemmd::v1::HoldEvent event;
      reader->Read(&event);  // held, or refused
      context->TryCancel();
      return reader->Finish();
    }
    case SessionCall::kList:
      return stub.ListSessions(context.get(), call.list(), &sessions);
    case SessionCall::kKernels:
      return served.devices().ListKernels(context.get(), call.kernels(), &kernels);
    case SessionCall::kDevices:
      return served.devices().ListDevices(context.get(), call.devices(), &devices);
    case SessionCall::kInfo:
      return served.devices().GetServerInfo(context.get(), call.info(), &info);
    case SessionCall::kGetLog:
      return served.admin().GetLog(context.get(), call.get_log(), &log);
    case SessionCall::kEnd:
      return served.admin().EndSession(context.get(), call.end(), &ended);
    case SessionCall::KIND_NOT_SET:
      break;
  }
  return grpc::Status::OK;
}

}  // namespace

GEMMD_PROTO_FUZZER(gemmd::fuzz::SessionScript, input) {
  Served& served = Served::Get();
  gemmd::fuzz::SessionScript script = input;
  served.Bind(script);
  std::vector<std::string> opened;
  for (const SessionCall& call : script.calls()) served.Judge(Send(served, call, opened));
  for (const std::string& session : opened) {
    gemmd::v1::CloseSessionRequest request;
    request.set_session_id(session);
    gemmd::v1::CloseSessionResponse response;
    served.Judge(served.sessions().CloseSession(served.Context().get(), request, &response));
  }
  served.Restore();
  served.Check();
}
