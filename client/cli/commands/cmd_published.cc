#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/document.h"
#include "client/cli/load/weight.h"
#include "client/cli/published.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Positional kPublishedPositionals[] = {
    {.name = "PATTERN",
     .help = "such as 'm/*'; * takes slashes, too",
     .required = false,
     .names = Names::kPublished},
};

absl::Status RunPublished(Invocation& call) {
  const std::string pattern = call.args.Positional(0);
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  absl::StatusOr<std::vector<v1::Buffer>> buffers =
      pattern.empty() ? client.ListPublished() : PublishedLike(client, pattern);
  if (!buffers.ok()) return buffers.status();
  Json document = {{"published", Json::array()}, {"size_bytes", 0}};
  std::vector<std::vector<std::string>> rows = {
      {"name", "dtype", "shape", "bytes", "device", "owner", "age", "last use", "ttl", "current"}};
  int64_t total = 0;
  const absl::Time now = absl::Now();
  for (const v1::Buffer& buffer : *buffers) {
    total += buffer.size_bytes();
    Json one = DocumentOf(buffer);
    const bool by_row = LinearScales(buffer.label()) == client::ScaleGranularity::kPerRow;
    rows.push_back(
        {buffer.published_name(), one["dtype"].get<std::string>() + (by_row ? " by row" : ""),
         ShapeText(buffer), HumanBytes(static_cast<double>(buffer.size_bytes())), buffer.device(),
         buffer.owner(), AgeText(buffer.publish_time().seconds(), now),
         buffer.holders() > 0 ? "in use" : AgeText(buffer.last_use_time().seconds(), now),
         buffer.has_ttl() ? absl::FormatDuration(absl::Seconds(buffer.ttl().seconds())) : "-",
         buffer.current_version() ? "*" : ""});
    document["published"].push_back(std::move(one));
  }
  document["size_bytes"] = total;
  call.out.Result(document, absl::StrCat(Table(rows), "\n", buffers->size(), " names, ",
                                         HumanBytes(static_cast<double>(total)), "\n"));
  return absl::OkStatus();
}

}  // namespace

const Command kPublishedCommand = {
    .name = "published",
    .summary = "list published buffers, all or those that a pattern matches",
    .details =
        "Quote the pattern, so that the shell leaves it alone. 'last use' is when the last session "
        "that held the buffer let go; 'in use' while one holds it. * marks the names of the "
        "version "
        "that names without one mean. 'e4m3 by row' has one scale a row: 'gemmctl matmul' takes it "
        "with --quantize fp8-row.",
    .positionals = kPublishedPositionals,
    .run = RunPublished};

}  // namespace gemmd::cli
