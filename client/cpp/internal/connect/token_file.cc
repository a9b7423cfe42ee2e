#include "client/cpp/internal/connect/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

constexpr size_t kShortestToken = 32;  // what the server takes: 128 bits in hex
constexpr size_t kLongest = 4096;
constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

absl::Status CannotRead(absl::string_view path) {
  const std::string text = absl::StrCat("cannot read token_file=", path, ": ", strerror(errno));
  return errno == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
}

}  // namespace

absl::StatusOr<std::string> ParseToken(absl::string_view text, absl::string_view path) {
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  const auto refuse = [path](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat("token_file=", path, " ", what...));
  };
  if (absl::StartsWith(token, "sha256:")) {
    return refuse(
        "has a line of the server's token file; a client's holds the token itself, which "
        "`gemmctl token` prints beside it");
  }
  // A byte that a header cannot carry would end the process inside gRPC.
  if (!std::all_of(token.begin(), token.end(),
                   [](unsigned char c) { return absl::ascii_isgraph(c); })) {
    return refuse(
        "does not hold one token alone: there is a blank, a second line or a byte that is "
        "not visible ASCII in it");
  }
  if (token.size() < kShortestToken || token.size() > kLongest) {
    return refuse("has a token of ", token.size(), " characters, not ", kShortestToken, " to ",
                  kLongest, "; `gemmctl token` makes one");
  }
  return std::string(token);
}

absl::StatusOr<TokenFile::Version> TokenFile::Read(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return CannotRead(path);
  const absl::Cleanup close_it = [file] { close(file); };
  struct stat found;
  if (fstat(file, &found) != 0) return CannotRead(path);
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("token_file=", path, " is not a file"));
  }
  std::string text(kLongest + 2, '\0');
  size_t size = 0;
  for (ssize_t got; size < text.size(); size += got) {
    got = read(file, text.data() + size, text.size() - size);
    if (got < 0) return CannotRead(path);
    if (got == 0) break;
  }
  text.resize(size);
  GEMMD_ASSIGN_OR_RETURN(std::string token, ParseToken(text, path));
  return Version{std::move(token), (found.st_mode & S_IROTH) != 0};
}

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(std::string path, Trouble trouble) {
  GEMMD_ASSIGN_OR_RETURN(const Version first, Read(path));
  if (first.others_read && trouble) {
    trouble(absl::FailedPreconditionError(absl::StrCat(
        "token_file=", path, " may be read by every user of this machine; chmod o-r it")));
  }
  return std::unique_ptr<TokenFile>(new TokenFile(std::move(path), std::move(trouble), first));
}

TokenFile::TokenFile(std::string path, Trouble trouble, const Version& first)
    : path_(std::move(path)),
      trouble_(std::move(trouble)),
      looked_(absl::Now()),
      header_(std::make_shared<const std::string>(absl::StrCat("Bearer ", first.token))) {}

std::shared_ptr<const std::string> TokenFile::header() {
  std::shared_ptr<const std::string> header;
  absl::Status trouble;
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = absl::Now();
    // A clock that was set back looks again too.
    if (now - looked_ >= kBetweenLooks || now < looked_) trouble = LookAgain(now);
    header = header_;
  }
  if (!trouble.ok() && trouble_) trouble_(trouble);
  return header;
}

absl::Status TokenFile::LookAgain(absl::Time now) {
  looked_ = now;
  const absl::StatusOr<Version> version = Read(path_);
  const absl::Status before = std::exchange(trouble_seen_, version.status());
  if (version.ok()) {
    header_ = std::make_shared<const std::string>(absl::StrCat("Bearer ", version->token));
    return absl::OkStatus();
  }
  if (version.status() == before) return absl::OkStatus();  // told once
  return absl::Status(version.status().code(),
                      absl::StrCat(version.status().message(), "; the token before it stays"));
}

}  // namespace gemmd::client
