#include "client/cli/transfers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmd::cli {
namespace {

double Rate(const client::TransferReport& report) {
  return report.seconds > 0 ? static_cast<double>(report.bytes) / report.seconds : 0;
}

}  // namespace

std::string TransferText(const client::TransferReport& report) {
  return absl::StrCat(
      HumanBytes(static_cast<double>(report.bytes)), " by ", client::Name(report.path), " in ",
      HumanSeconds(report.seconds), absl::StrFormat(", %.2f GB/s", Rate(report) / 1e9),
      report.resumes > 0
          ? absl::StrCat(", resumed ", report.resumes, report.resumes == 1 ? " time" : " times")
          : "");
}

Json TransferJson(const client::TransferReport& report) {
  return {{"path", std::string(client::Name(report.path))},
          {"bytes", report.bytes},
          {"seconds", report.seconds},
          {"bytes_per_second", Rate(report)},
          {"resumes", report.resumes}};
}

void Accumulate(const client::TransferReport& report, client::TransferReport& sum) {
  if (report.bytes >= sum.bytes) sum.path = report.path;  // the larger one's path stands for both
  sum.bytes += report.bytes;
  sum.seconds += report.seconds;
  sum.resumes += report.resumes;
}

client::TransferOptions::Route RouteOf(absl::string_view name) {
  if (name == "grpc") return client::TransferOptions::Route::kGrpc;
  if (name == "shm") return client::TransferOptions::Route::kShm;
  return client::TransferOptions::Route::kAuto;
}

}  // namespace gemmd::cli
