// The bearer token that a client shows, kept in a file so that it can be changed while the client
// runs and appears in no command line.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace gemmd::client {

// The token in a file's text: one line of 32 to 4096 visible ASCII characters, blanks around it
// left out. INVALID_ARGUMENT says what is wrong with `path`, and never shows the text.
absl::StatusOr<std::string> ParseToken(absl::string_view text, absl::string_view path);

// Thread-safe. The file is read again when it is asked a second after the last time: it is so small
// that no stamp need say whether it changed. One that has become unusable leaves the token as it
// was.
class TokenFile {
 public:
  // `trouble` hears what is no reason to fail: a file that others may read, one that went wrong
  // later. Called by whoever asks for the token.
  using Trouble = std::function<void(const absl::Status&)>;
  // NOT_FOUND or PERMISSION_DENIED when it cannot be read, INVALID_ARGUMENT when it has no token.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(std::string path, Trouble trouble);

  // "Bearer <token>".
  std::shared_ptr<const std::string> header() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Version {
    std::string token;
    bool others_read = false;
  };

  TokenFile(std::string path, Trouble trouble, const Version& first);
  static absl::StatusOr<Version> Read(const std::string& path);
  // The trouble with what was found, if it is to be told.
  absl::Status LookAgain(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  const Trouble trouble_;
  absl::Mutex mu_;
  absl::Time looked_ ABSL_GUARDED_BY(mu_);
  absl::Status trouble_seen_ ABSL_GUARDED_BY(mu_);                  // the last look's
  std::shared_ptr<const std::string> header_ ABSL_GUARDED_BY(mu_);  // calls keep what they sent
};

}  // namespace gemmd::client
