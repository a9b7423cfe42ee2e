#include "client/cli/top/scrape.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr timeval kPatience = {3, 0};
constexpr size_t kMaxReplyBytes = 64 << 20;

absl::StatusOr<std::string> HttpGet(const std::string& address) {
  const auto failed = [&](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("no metrics at ", address, ": ", why,
                                               "; the daemon's metrics.address says where they "
                                               "are"));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return failed("not HOST:PORT");
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
      code != 0) {
    return failed(gai_strerror(code));
  }
  const auto free_found = absl::MakeCleanup([&] { freeaddrinfo(found); });
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return failed(std::strerror(errno));
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) return failed(std::strerror(errno));
  const std::string request =
      absl::StrCat("GET /metrics HTTP/1.1\r\nHost: ", address, "\r\nConnection: close\r\n\r\n");
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return failed(std::strerror(errno));
  }
  std::string reply;
  char buffer[65536];
  ssize_t got = 0;
  while (reply.size() < kMaxReplyBytes && (got = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
    reply.append(buffer, got);
  }
  if (got < 0) return failed(std::strerror(errno));
  const size_t body = reply.find("\r\n\r\n");
  if (body == std::string::npos || !absl::StrContains(reply.substr(0, reply.find('\r')), " 200")) {
    return failed("not the answer of a metrics endpoint");
  }
  return reply.substr(body + 4);
}

// `name="value",...`; false for what is not that.
bool ParseLabels(absl::string_view text, std::map<std::string, std::string>& labels) {
  while (!text.empty()) {
    const size_t quote = text.find("=\"");
    if (quote == absl::string_view::npos) return false;
    const std::string name(text.substr(0, quote));
    std::string value;
    size_t at = quote + 2;
    for (; at < text.size() && text[at] != '"'; ++at) {
      if (text[at] == '\\' && at + 1 < text.size()) ++at;
      value.push_back(text[at]);
    }
    if (at >= text.size()) return false;
    labels[name] = value;
    text.remove_prefix(at + 1);
    if (!text.empty() && text[0] == ',') text.remove_prefix(1);
  }
  return true;
}

}  // namespace

MetricSamples ParseMetrics(absl::string_view text) {
  MetricSamples samples;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == absl::string_view::npos) continue;
    MetricSample sample;
    if (!absl::SimpleAtod(line.substr(space + 1), &sample.value)) continue;
    absl::string_view series = line.substr(0, space);
    const size_t brace = series.find('{');
    if (brace != absl::string_view::npos) {
      if (series.back() != '}') continue;
      const absl::string_view labels = series.substr(brace + 1, series.size() - brace - 2);
      if (!ParseLabels(labels, sample.labels)) continue;
      series = series.substr(0, brace);
    }
    samples.emplace(std::string(series), std::move(sample));
  }
  return samples;
}

absl::StatusOr<MetricSamples> Scrape(const std::string& address) {
  GEMMD_ASSIGN_OR_RETURN(std::string text, HttpGet(address));
  return ParseMetrics(text);
}

}  // namespace gemmd::cli
