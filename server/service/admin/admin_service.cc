#include "server/service/admin/admin_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/tuning/device_tuner.h"
#include "server/service/admin/tune.h"
#include "server/service/compute/trace.h"

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

}  // namespace

AdminService::AdminService(ServiceContext& context, StreamRegistry& streams)
    : streams_(streams),
      get_log_(context, "GetLog"),
      set_log_(context, "SetLog"),
      end_session_(context, "EndSession"),
      trace_(context, "Trace"),
      tune_(context, "Tune"),
      export_tuning_(context, "ExportTuning"),
      import_tuning_(context, "ImportTuning") {
  rpcs_.Serve(get_log_, this, &AdminService::GetLog);
  rpcs_.Serve(set_log_, this, &AdminService::SetLog);
  rpcs_.Serve(end_session_, this, &AdminService::EndSession);
  rpcs_.ServeWriter<v1::TraceChunk>(trace_, [this](auto* context, const auto* request) {
    return ServeTrace(trace_, streams_, context, *request);
  });
  rpcs_.ServeWriter<v1::TuneProgress>(tune_, [this](auto* context, const auto* request) {
    return ServeTune(tune_, streams_, context, *request);
  });
  rpcs_.Serve(export_tuning_, this, &AdminService::ExportTuning);
  rpcs_.Serve(import_tuning_, this, &AdminService::ImportTuning);
}

absl::Status AdminService::GetLog(Call& call, const v1::GetLogRequest&, v1::LogSettings* response) {
  Fill(call.state().log(), response);
  return absl::OkStatus();
}

absl::Status AdminService::SetLog(Call& call, const v1::SetLogRequest& request,
                                  v1::LogSettings* response) {
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

absl::Status AdminService::EndSession(Call& call, const v1::EndSessionRequest& request,
                                      v1::EndSessionResponse*) {
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

absl::Status AdminService::ExportTuning(Call& call, const v1::ExportTuningRequest& request,
                                        v1::ExportTuningResponse* response) {
  auto tuner = call.state().FindTuner(request.device());
  if (!tuner.ok()) return tuner.status();
  response->set_device((*tuner)->device().name());
  response->set_table((*tuner)->Export());
  response->set_shapes((*tuner)->tuner().kept_shapes());
  return absl::OkStatus();
}

absl::Status AdminService::ImportTuning(Call& call, const v1::ImportTuningRequest& request,
                                        v1::ImportTuningResponse* response) {
  if (absl::Status open = call.state().CheckOpen(); !open.ok()) return open;
  auto tuner = call.state().FindTuner(request.device());
  if (!tuner.ok()) return tuner.status();
  auto imported = (*tuner)->Import(request.table());
  if (!imported.ok()) return imported.status();
  response->set_device((*tuner)->device().name());
  response->set_shapes(imported->shapes);
  response->set_skipped(imported->skipped);
  return absl::OkStatus();
}

}  // namespace gemmd::server
