#include "client/cli/published.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/connect.h"
#include "client/cpp/types.h"

namespace gemmd::cli {
namespace {

// fnmatch takes a [ that nothing closes for itself, and then matches no name.
bool HasOpenBracket(const std::string& pattern) {
  const size_t open = pattern.rfind('[');
  return open != std::string::npos && pattern.find(']', open + 2) == std::string::npos;
}

}  // namespace

bool IsPattern(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

absl::StatusOr<std::vector<v1::Buffer>> PublishedLike(client::Client& client,
                                                      const std::string& pattern) {
  if (HasOpenBracket(pattern)) {
    return WithExit(ExitCode::kUsage,
                    absl::InvalidArgumentError(absl::StrCat(
                        "pattern '", pattern, "' has a [ that no ] closes; write [abc] or [a-z]")));
  }
  absl::StatusOr<std::vector<v1::Buffer>> all = client.ListPublished();
  if (!all.ok()) return all.status();
  const size_t there_are = all->size();
  std::erase_if(*all, [&](const v1::Buffer& buffer) {
    return fnmatch(pattern.c_str(), buffer.published_name().c_str(), 0) != 0;
  });
  if (all->empty()) {
    return absl::NotFoundError(absl::StrCat("no published name matches '", pattern, "'; there are ",
                                            there_are, ": 'gemmctl published' lists them"));
  }
  std::sort(all->begin(), all->end(), [](const v1::Buffer& a, const v1::Buffer& b) {
    return a.published_name() < b.published_name();
  });
  return all;
}

std::string ShapeText(const v1::Buffer& buffer) {
  return absl::StrCat("[", absl::StrJoin(buffer.shape(), ", "), "]");
}

Json BufferDocument(const v1::Buffer& buffer) {
  return {{"published_name", buffer.published_name()},
          {"device", buffer.device()},
          {"memory_kind",
           std::string(client::Name(static_cast<client::MemoryKind>(buffer.memory_kind())))},
          {"dtype", std::string(client::Name(static_cast<client::DType>(buffer.dtype())))},
          {"shape", std::vector<int64_t>(buffer.shape().begin(), buffer.shape().end())},
          {"size_bytes", buffer.size_bytes()},
          {"read_only", buffer.read_only()},
          {"create_time", TimeText(buffer.create_time().seconds(), buffer.create_time().nanos())},
          {"label", buffer.label()}};
}

}  // namespace gemmd::cli
