#include "tests/hostile/http2.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace gemmd::hostile {
namespace {

constexpr std::string_view kPrefaceText = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeaderBytes = 9;
constexpr uint16_t kInitialWindowSize = 4;  // RFC 9113, 6.5.2

void AppendBigEndian(std::string& to, uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    to.push_back(static_cast<char>(value >> shift));
  }
}

uint32_t BigEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

// RFC 7541, 5.1, with a prefix of 7 bits and no flag.
void AppendLength(std::string& to, size_t length) {
  if (length < 127) {
    to.push_back(static_cast<char>(length));
    return;
  }
  to.push_back(127);
  for (length -= 127; length >= 128; length >>= 7) {
    to.push_back(static_cast<char>(length % 128 + 128));
  }
  to.push_back(static_cast<char>(length));
}

int ConnectUnix(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

int ConnectTcp(const PeerOptions& options) {
  const size_t colon = options.target.rfind(':');
  int port = 0;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  if (colon == std::string::npos || !absl::SimpleAtoi(options.target.substr(colon + 1), &port) ||
      inet_pton(AF_INET, options.target.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    return -1;
  }
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_in source = {};
  source.sin_family = AF_INET;
  const bool bound = options.source.empty() ||
                     (inet_pton(AF_INET, options.source.c_str(), &source.sin_addr) == 1 &&
                      bind(fd, reinterpret_cast<const sockaddr*>(&source), sizeof(source)) == 0);
  if (bound && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

// The certificate and the key of `identity` for `context`.
bool Show(SSL_CTX* context, const e2e::Identity& identity) {
  BIO* const text =
      BIO_new_mem_buf(identity.certificate.data(), static_cast<int>(identity.certificate.size()));
  X509* const certificate = PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
  BIO* const key_text = BIO_new_mem_buf(identity.key.data(), static_cast<int>(identity.key.size()));
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(key_text, nullptr, nullptr, nullptr);
  const bool shown = certificate != nullptr && key != nullptr &&
                     SSL_CTX_use_certificate(context, certificate) == 1 &&
                     SSL_CTX_use_PrivateKey(context, key) == 1;
  X509_free(certificate);
  EVP_PKEY_free(key);
  BIO_free(text);
  BIO_free(key_text);
  return shown;
}

}  // namespace

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame;
  frame.reserve(kFrameHeaderBytes + payload.size());
  AppendBigEndian(frame, payload.size(), 3);
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  AppendBigEndian(frame, stream, 4);
  return frame.append(payload);
}

std::string WindowUpdate(uint32_t stream, uint32_t bytes) {
  std::string payload;
  AppendBigEndian(payload, bytes, 4);
  return Frame(FrameType::kWindowUpdate, kNoFlags, stream, payload);
}

std::string ResetStream(uint32_t stream) {
  std::string payload;
  AppendBigEndian(payload, 8, 4);  // CANCEL
  return Frame(FrameType::kResetStream, kNoFlags, stream, payload);
}

std::string Preface(const std::vector<std::pair<uint16_t, uint32_t>>& settings) {
  std::string payload;
  for (const auto& [id, value] : settings) {
    AppendBigEndian(payload, id, 2);
    AppendBigEndian(payload, value, 4);
  }
  return std::string(kPrefaceText) + Frame(FrameType::kSettings, kNoFlags, 0, payload);
}

std::string HeaderField(std::string_view name, std::string_view value) {
  std::string field(1, '\0');  // literal, not indexed, with a new name
  AppendLength(field, name.size());
  field.append(name);
  AppendLength(field, value.size());
  return field.append(value);
}

std::string RequestHeaders(std::string_view method, const Metadata& more) {
  std::string block = HeaderField(":method", "POST") + HeaderField(":scheme", "http") +
                      HeaderField(":path", method) + HeaderField(":authority", "gemmd.test") +
                      HeaderField("te", "trailers") +
                      HeaderField("content-type", "application/grpc");
  for (const auto& [name, value] : more) block += HeaderField(name, value);
  return block;
}

std::string BeginCall(uint32_t stream, std::string_view method) {
  return Frame(FrameType::kHeaders, kEndHeaders, stream, RequestHeaders(method));
}

std::string Message(std::string_view bytes) {
  std::string message(1, '\0');
  AppendBigEndian(message, bytes.size(), 4);
  return message.append(bytes);
}

RawConnection::RawConnection(const PeerOptions& options) {
  // TLS writes without MSG_NOSIGNAL.
  signal(SIGPIPE, SIG_IGN);
  absl::string_view path = options.target;
  fd_ = absl::ConsumePrefix(&path, "unix:") ? ConnectUnix(std::string(path)) : ConnectTcp(options);
  if (fd_ < 0) return;
  if (options.tls && !ShakeHands(options)) {
    Fail();
    return;
  }
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

RawConnection::~RawConnection() { Close(); }

void RawConnection::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void RawConnection::Fail() { Close(); }

bool RawConnection::ShakeHands(const PeerOptions& options) {
  const timeval patience = {20, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  context_.reset(SSL_CTX_new(TLS_client_method()));
  if (!options.identity.certificate.empty() && !Show(context_.get(), options.identity)) {
    return false;
  }
  SSL_CTX_set_mode(context_.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ssl_.reset(SSL_new(context_.get()));
  const unsigned char protocols[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl_.get(), protocols, sizeof(protocols));
  SSL_set_fd(ssl_.get(), fd_);
  return SSL_connect(ssl_.get()) == 1;
}

int64_t RawConnection::ReadSome(char* into, size_t bytes) {
  if (ssl_ == nullptr) {
    const ssize_t got = recv(fd_, into, bytes, MSG_DONTWAIT);
    if (got > 0) return got;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
  }
  ERR_clear_error();
  const int got = SSL_read(ssl_.get(), into, static_cast<int>(bytes));
  if (got > 0) return got;
  const int error = SSL_get_error(ssl_.get(), got);
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

int64_t RawConnection::WriteSome(std::string_view bytes) {
  if (ssl_ == nullptr) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
  }
  ERR_clear_error();
  const int sent = SSL_write(ssl_.get(), bytes.data(),
                             static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20)));
  if (sent > 0) return sent;
  const int error = SSL_get_error(ssl_.get(), sent);
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

bool RawConnection::Handshake(absl::Duration timeout) {
  if (!open() || !Send(Preface())) return false;
  const absl::Time end = absl::Now() + timeout;
  while (!settled_ && absl::Now() < end) {
    if (!Read(absl::Milliseconds(20))) return false;
  }
  return settled_;
}

bool RawConnection::Send(std::string_view bytes, absl::Duration patience) {
  if (sending_) return open();
  sending_ = true;
  bool sent = SendAll(bytes, patience);
  // Frames must not be mixed, and TLS wants what it took a part of before anything else.
  while (sent && !answers_.empty()) sent = SendAll(std::exchange(answers_, ""), patience);
  sending_ = false;
  return sent;
}

bool RawConnection::SendAll(std::string_view bytes, absl::Duration patience) {
  absl::Time moved = absl::Now();
  while (open() && !bytes.empty()) {
    const int64_t sent = WriteSome(bytes);
    if (sent < 0) {
      Fail();
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
    if (sent > 0) moved = absl::Now();
    if (!Read()) return false;
    if (sent > 0) continue;
    if (absl::Now() - moved > patience) {
      // A part of a frame is out: nothing sensible can follow.
      Fail();
      return false;
    }
    pollfd polled = {fd_, POLLIN | POLLOUT, 0};
    poll(&polled, 1, 20);
  }
  return open();
}

bool RawConnection::Read(absl::Duration timeout) {
  if (!open()) return false;
  if (timeout > absl::ZeroDuration() && (ssl_ == nullptr || SSL_pending(ssl_.get()) == 0)) {
    pollfd polled = {fd_, POLLIN, 0};
    poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  }
  char bytes[65536];
  while (true) {
    const int64_t got = ReadSome(bytes, sizeof(bytes));
    if (got < 0) {
      Fail();
      return false;
    }
    if (got == 0) return answers_.empty() || Send("");
    input_.append(bytes, static_cast<size_t>(got));
    TakeFrames();
    if (!open()) return false;
  }
}

bool RawConnection::AwaitEnd(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (absl::Now() < end) {
    if (!Read(absl::Milliseconds(20))) return true;
  }
  return !open();
}

int64_t RawConnection::stream_window(uint32_t stream) const {
  const auto found = window_changes_.find(stream);
  return initial_window_ + (found == window_changes_.end() ? 0 : found->second);
}

void RawConnection::Sent(uint32_t stream, int64_t data_bytes) {
  connection_window_ -= data_bytes;
  window_changes_[stream] -= data_bytes;
}

int RawConnection::frames(FrameType type) const {
  const auto found = frames_.find(type);
  return found == frames_.end() ? 0 : found->second;
}

void RawConnection::TakeFrames() {
  size_t at = 0;
  while (input_.size() - at >= kFrameHeaderBytes) {
    const std::string_view frame = std::string_view(input_).substr(at);
    const size_t length = BigEndian(frame.substr(0, 3));
    if (frame.size() < kFrameHeaderBytes + length) break;
    TakeFrame(static_cast<FrameType>(frame[3]), static_cast<uint8_t>(frame[4]),
              BigEndian(frame.substr(5, 4)), frame.substr(kFrameHeaderBytes, length));
    at += kFrameHeaderBytes + length;
  }
  input_.erase(0, at);
}

void RawConnection::TakeFrame(FrameType type, uint8_t flags, uint32_t stream,
                              std::string_view payload) {
  ++frames_[type];
  switch (type) {
    case FrameType::kSettings:
      if (flags & kAck) return;
      for (; payload.size() >= 6; payload.remove_prefix(6)) {
        if (BigEndian(payload.substr(0, 2)) == kInitialWindowSize) {
          initial_window_ = BigEndian(payload.substr(2, 4));
        }
      }
      settled_ = true;
      answers_ += Frame(FrameType::kSettings, kAck, 0, "");
      return;
    case FrameType::kPing:
      if (!(flags & kAck)) answers_ += Frame(FrameType::kPing, kAck, 0, payload);
      return;
    case FrameType::kWindowUpdate:
      (stream == 0 ? connection_window_ : window_changes_[stream]) += BigEndian(payload);
      return;
    case FrameType::kData:
      data_[stream].append(payload);
      return;
    default:
      return;
  }
}

}  // namespace gemmd::hostile
