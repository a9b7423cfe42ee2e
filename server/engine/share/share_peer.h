// SharePeer: one connection to the share socket, from its first byte to its answer.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/engine/share/share.h"
#include "server/engine/share/share_tokens.h"

namespace gemmd::server {

// Used by the share socket's thread alone. Never blocks. Destruction closes the connection and
// whatever descriptors came over it.
class SharePeer {
 public:
  SharePeer(UniqueFd connection, absl::Time since)
      : connection_(std::move(connection)), since_(since) {}

  int fd() const { return connection_.get(); }
  absl::Time since() const { return since_; }

  enum class Progress { kMore, kDone };
  // Reads what is there and, once the request is complete or wrong, answers it. kDone: drop the
  // peer.
  Progress OnReadable(ShareTokens& tokens);

 private:
  enum class Read { kSome, kNothingNow, kEnd };
  Read ReadOnce();
  bool complete() const;
  void Answer(ShareTokens& tokens);
  absl::Status AnswerGet(ShareTokens& tokens);
  absl::Status AnswerPut(ShareTokens& tokens);
  absl::Status Send(const std::string& bytes, int fd);

  UniqueFd connection_;
  absl::Time since_;
  std::string request_;  // at most 'G' and a token
  std::vector<UniqueFd> received_;
  bool descriptors_lost_ = false;  // more were sent than one, or than this process may open
};

}  // namespace gemmd::server
