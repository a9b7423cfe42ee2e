// HTTP/2 frame by frame, for what no client of gRPC's would send: a connection over TCP, a Unix
// socket or TLS, and the bytes of frames.
//
//   RawConnection peer({.target = daemon.tcp_target()});
//   peer.Handshake();
//   peer.Send(Headers(1, RequestHeaders("/grpc.health.v1.Health/Check"), kEndHeaders));

#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/certificates.h"

namespace gemmd::hostile {

// RFC 9113, 6.
enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
inline constexpr uint8_t kNoFlags = 0;
inline constexpr uint8_t kAck = 0x1;
inline constexpr uint8_t kEndStream = 0x1;
inline constexpr uint8_t kEndHeaders = 0x4;

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload);
std::string WindowUpdate(uint32_t stream, uint32_t bytes);
std::string ResetStream(uint32_t stream);
// The client's preface and a SETTINGS frame, whose entries are {id, value}.
std::string Preface(const std::vector<std::pair<uint16_t, uint32_t>>& settings = {});

using Metadata = std::vector<std::pair<std::string, std::string>>;
// HPACK: literals that are neither indexed nor Huffman-coded.
std::string HeaderField(std::string_view name, std::string_view value);
// Of a gRPC call.
std::string RequestHeaders(std::string_view method, const Metadata& more = {});
// The frame that begins a call.
std::string BeginCall(uint32_t stream, std::string_view method);
// A gRPC message: the flag, the length, the bytes.
std::string Message(std::string_view bytes);

struct PeerOptions {
  std::string target;       // "127.0.0.1:41234", "unix:/path"
  std::string source = "";  // of a TCP connection: "127.0.0.2"; empty: as the system chooses
  bool tls = false;
  e2e::Identity identity = {};  // empty: shows no certificate
  int64_t most_cuts = 1 << 30;  // an attack that was cut so often is over
};

// One thread. Never ends the test program: a peer that is cut is what these tests are about.
class RawConnection {
 public:
  // Connected, and with TLS shaken hands, when open().
  explicit RawConnection(const PeerOptions& options);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;

  bool open() const { return fd_ >= 0; }
  // Preface and SETTINGS both ways; true when the server's came and were acknowledged.
  bool Handshake(absl::Duration timeout = absl::Minutes(1));
  // All of it, reading meanwhile; false when the connection is cut or nothing moves for `patience`.
  bool Send(std::string_view bytes, absl::Duration patience = absl::Minutes(1));
  // Reads what is there, waiting for up to `timeout`. False when the connection is cut.
  bool Read(absl::Duration timeout = absl::ZeroDuration());
  // True when the server has cut the connection before the time is over.
  bool AwaitEnd(absl::Duration timeout);
  void Close();

  // Of what was read. How many bytes may still be sent, as the windows have it.
  int64_t connection_window() const { return connection_window_; }
  int64_t stream_window(uint32_t stream) const;
  void Sent(uint32_t stream, int64_t data_bytes);
  int frames(FrameType type) const;
  // Of DATA frames of a stream, with the five bytes of each message.
  const std::string& data(uint32_t stream) { return data_[stream]; }

 private:
  void Fail();
  bool ShakeHands(const PeerOptions& options);
  bool SendAll(std::string_view bytes, absl::Duration patience);
  int64_t ReadSome(char* into, size_t bytes);
  int64_t WriteSome(std::string_view bytes);
  void TakeFrames();
  void TakeFrame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload);

  int fd_ = -1;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{nullptr, SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  std::string input_;
  std::string answers_;  // to SETTINGS and PINGs, to go between two frames
  bool sending_ = false;
  bool settled_ = false;
  int64_t connection_window_ = 65535;
  int64_t initial_window_ = 65535;
  std::map<uint32_t, int64_t> window_changes_;
  std::map<FrameType, int> frames_;
  std::map<uint32_t, std::string> data_;
};

}  // namespace gemmd::hostile
