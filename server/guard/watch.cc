// The functions of the C library and of OpenSSL that this stands in front of. gRPC, a shared
// library, finds them here first. They are handed on by system call or to the next library, and do
// nothing else for descriptors and TLS that are not watched.

#include <dlfcn.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "server/guard/connection.h"

namespace gemmd::guard {
namespace {

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void LetGo(void*, void* connection, CRYPTO_EX_DATA*, int, long, void*) {
  if (connection != nullptr) static_cast<Connection*>(connection)->Unref();
}

// Where an SSL keeps its connection.
int Index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, LetGo);
  return index;
}

// What was moved of a message's pieces, in order, until `take` has enough.
template <typename Function>
bool ForEachPiece(const msghdr& message, ssize_t moved, Function take) {
  size_t left = static_cast<size_t>(moved);
  for (size_t i = 0; i < message.msg_iovlen && left > 0; ++i) {
    const iovec& piece = message.msg_iov[i];
    const size_t bytes = std::min(piece.iov_len, left);
    if (!take(std::string_view(static_cast<const char*>(piece.iov_base), bytes))) return false;
    left -= bytes;
  }
  return true;
}

ssize_t Reset() {
  errno = ECONNRESET;
  return -1;
}

}  // namespace

void StandInFront() { Index(); }

}  // namespace gemmd::guard

#define GEMMD_VISIBLE extern "C" __attribute__((visibility("default")))

GEMMD_VISIBLE ssize_t recvmsg(int fd, msghdr* message, int flags) {
  using namespace gemmd::guard;
  Connection* const connection = Watched(fd);
  const bool bytes = connection != nullptr && !connection->tls() && !(flags & MSG_ERRQUEUE);
  if (bytes && connection->cut()) return Reset();
  const ssize_t received = syscall(SYS_recvmsg, fd, message, flags);
  if (!bytes || received <= 0) return received;
  const bool taken = ForEachPiece(*message, received,
                                  [&](std::string_view piece) { return connection->Take(piece); });
  return taken ? received : Reset();
}

GEMMD_VISIBLE ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  using namespace gemmd::guard;
  Connection* const connection = Watched(fd);
  const ssize_t sent = syscall(SYS_sendmsg, fd, message, flags);
  if (sent > 0 && connection != nullptr && !connection->tls() && connection->counts_answers()) {
    ForEachPiece(*message, sent, [&](std::string_view piece) {
      connection->Sent(piece);
      return true;
    });
  }
  return sent;
}

GEMMD_VISIBLE int close(int fd) {
  using namespace gemmd::guard;
  if (Watched(fd) != nullptr) Forget(fd);
  return static_cast<int>(syscall(SYS_close, fd));
}

GEMMD_VISIBLE SSL* SSL_new(SSL_CTX* context) {
  using namespace gemmd::guard;
  static auto* const next = Next<SSL*(SSL_CTX*)>("SSL_new");
  SSL* const ssl = next(context);
  Connection* const connection = BeingHandedOver();
  if (ssl != nullptr && connection != nullptr && SSL_set_ex_data(ssl, Index(), connection) == 1) {
    connection->Ref();
  }
  return ssl;
}

GEMMD_VISIBLE int SSL_read(SSL* ssl, void* into, int bytes) {
  using namespace gemmd::guard;
  static auto* const next = Next<int(SSL*, void*, int)>("SSL_read");
  const int got = next(ssl, into, bytes);
  if (got <= 0) return got;
  auto* const connection = static_cast<Connection*>(SSL_get_ex_data(ssl, Index()));
  if (connection == nullptr) return got;
  // -1 with an empty error queue is a connection that broke.
  return connection->Take({static_cast<const char*>(into), static_cast<size_t>(got)}) ? got : -1;
}

GEMMD_VISIBLE int SSL_write(SSL* ssl, const void* from, int bytes) {
  using namespace gemmd::guard;
  static auto* const next = Next<int(SSL*, const void*, int)>("SSL_write");
  const int sent = next(ssl, from, bytes);
  if (sent <= 0) return sent;
  auto* const connection = static_cast<Connection*>(SSL_get_ex_data(ssl, Index()));
  if (connection != nullptr && connection->counts_answers()) {
    connection->Sent({static_cast<const char*>(from), static_cast<size_t>(sent)});
  }
  return sent;
}
