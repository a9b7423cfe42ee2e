#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gemmd/v1/admin_service.grpc.pb.h"
#include "server/engine/reason.h"
#include "server/engine/tuning/device_tuner.h"
#include "server/service/admin/tune.h"
#include "server/service/compute/trace.h"
#include "server/service/services.h"
#include "server/service/wire/rpcs.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

struct LevelName {
  std::string_view name;
  LogLevel level;
};
constexpr LevelName kLevels[] = {{"debug", LogLevel::kDebug},
                                 {"info", LogLevel::kInfo},
                                 {"warning", LogLevel::kWarning},
                                 {"error", LogLevel::kError}};

std::optional<LogLevel> ParseLevel(std::string_view name) {
  for (const LevelName& entry : kLevels) {
    if (entry.name == name) return entry.level;
  }
  return std::nullopt;
}

void Fill(const Log& log, v1::LogSettings* response) {
  for (const LevelName& entry : kLevels) {
    if (entry.level == log.level()) response->set_level(std::string(entry.name));
  }
  response->set_sample_calls(log.sample_calls());
}

absl::Status GetLog(Call& call, const v1::GetLogRequest&, v1::LogSettings* response) {
  Fill(call.state().log(), response);
  return absl::OkStatus();
}

absl::Status SetLog(Call& call, const v1::SetLogRequest& request, v1::LogSettings* response) {
  Log& log = call.state().log();
  LogLevel level = log.level();
  int sample_calls = log.sample_calls();
  if (!request.level().empty()) {
    const auto asked = ParseLevel(request.level());
    if (!asked) {
      return absl::InvalidArgumentError(
          absl::StrCat("level=\"", absl::CHexEscape(request.level().substr(0, 64)),
                       "\" is none; give debug, info, warning or error"));
    }
    level = *asked;
  }
  if (request.has_sample_calls()) {
    sample_calls = request.sample_calls();
    if (sample_calls < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("sample_calls=", sample_calls, " is below 0; give 0 for none, 1 for all"));
    }
  }
  log.Set(level, sample_calls);
  Fill(log, response);
  return absl::OkStatus();
}

absl::Status EndSession(Call& call, const v1::EndSessionRequest& request, v1::EndSessionResponse*) {
  SessionStore& sessions = call.state().sessions();
  const auto session = sessions.FindByName(request.name());
  if (session == nullptr || !sessions.End(*session, EndCause::kEvicted)) {
    return WithReason(absl::NotFoundError(absl::StrCat(
                          "there is no session \"", absl::CHexEscape(request.name().substr(0, 64)),
                          "\"; `gemmctl sessions` lists those there are")),
                      reason::kSessionGone);
  }
  return absl::OkStatus();
}

absl::Status ExportTuning(Call& call, const v1::ExportTuningRequest& request,
                          v1::ExportTuningResponse* response) {
  GEMMD_ASSIGN_OR_RETURN(auto tuner, call.state().FindTuner(request.device()));
  response->set_device(tuner->device().name());
  response->set_table(tuner->Export());
  response->set_shapes(tuner->tuner().kept_shapes());
  return absl::OkStatus();
}

absl::Status ImportTuning(Call& call, const v1::ImportTuningRequest& request,
                          v1::ImportTuningResponse* response) {
  GEMMD_RETURN_IF_ERROR(call.state().CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(auto tuner, call.state().FindTuner(request.device()));
  GEMMD_ASSIGN_OR_RETURN(auto imported, tuner->Import(request.table()));
  response->set_device(tuner->device().name());
  response->set_shapes(imported.shapes);
  response->set_skipped(imported.skipped);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(ServiceContext& context) {
  auto rpcs = std::make_unique<Rpcs<v1::AdminService>>(context);
  rpcs->Serve(GetLog);
  rpcs->Serve(SetLog);
  rpcs->Serve(EndSession);
  rpcs->Serve(ExportTuning);
  rpcs->Serve(ImportTuning);
  rpcs->ServeWriter<v1::TraceRequest, v1::TraceChunk>(ServeTrace);
  rpcs->ServeWriter<v1::TuneRequest, v1::TuneProgress>(ServeTune);
  return rpcs;
}

}  // namespace gemmd::server
