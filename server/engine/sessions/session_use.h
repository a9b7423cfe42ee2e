// SessionUse: a claim that keeps a session's end waiting while a call or program of it is under
// way.

#pragma once

#include <memory>

namespace gemmd::server {

class Session;

// Move-only. Empty by default. Destruction of the last use of an ended session frees what the
// session held.
class SessionUse {
 public:
  SessionUse() = default;
  SessionUse(SessionUse&&) noexcept = default;
  SessionUse& operator=(SessionUse&& other) noexcept;
  ~SessionUse();

  explicit operator bool() const { return session_ != nullptr; }
  Session* operator->() const { return session_.get(); }
  Session& operator*() const { return *session_; }

 private:
  friend class Session;
  explicit SessionUse(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  void Release();
  std::shared_ptr<Session> session_;
};

}  // namespace gemmd::server
