// SessionUse: a claim that keeps a session's end waiting while a call or program of it is under
// way.

#ifndef GEMMD_SERVER_ENGINE_SESSIONS_SESSION_USE_H_
#define GEMMD_SERVER_ENGINE_SESSIONS_SESSION_USE_H_

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

#endif  // GEMMD_SERVER_ENGINE_SESSIONS_SESSION_USE_H_
