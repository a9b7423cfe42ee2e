#include "tests/hostile/hoards.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace gemmd::hostile {
namespace {

constexpr int kBatches = 64;
constexpr int64_t kHoardFrameBytes = 16384;
constexpr absl::Duration kHoardPatience = absl::Seconds(5);

// The flag and the length of a message.
std::string Prefix(int64_t message_bytes) {
  std::string prefix(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) {
    prefix.push_back(static_cast<char>(message_bytes >> shift));
  }
  return prefix;
}

}  // namespace

UnreadQueues::UnreadQueues(const std::string& target, const std::string& session, int count,
                           const v1::Batch& batch) {
  for (int i = 0; i < count; ++i) {
    wires_.push_back(std::make_unique<e2e::Wire>(target));
    contexts_.push_back(std::make_unique<grpc::ClientContext>());
    streams_.push_back(wires_.back()->compute().Queue(contexts_.back().get()));
    threads_.emplace_back([stream = streams_.back().get(), session, batch] {
      v1::QueueRequest request;
      request.mutable_open()->set_session_id(session);
      bool open = stream->Write(request);
      *request.mutable_batch() = batch;
      for (int64_t sequence = 1; open && sequence <= kBatches; ++sequence) {
        request.mutable_batch()->set_sequence(sequence);
        open = stream->Write(request);  // waits while the server takes nothing
      }
    });
  }
}

UnreadQueues::~UnreadQueues() {
  for (auto& context : contexts_) context->TryCancel();
  for (std::thread& thread : threads_) thread.join();
  for (auto& stream : streams_) stream->Finish();
}

UnreadDownloads::UnreadDownloads(const std::string& target, const std::string& session,
                                 const std::string& buffer, int count) {
  v1::DownloadRequest request;
  request.set_session_id(session);
  request.set_buffer_id(buffer);
  request.set_chunk_bytes(3 << 20);  // the most that one may ask for
  for (int i = 0; i < count; ++i) {
    wires_.push_back(std::make_unique<e2e::Wire>(target));
    contexts_.push_back(std::make_unique<grpc::ClientContext>());
    streams_.push_back(wires_.back()->buffers().Download(contexts_.back().get(), request));
  }
}

UnreadDownloads::~UnreadDownloads() {
  for (auto& context : contexts_) context->TryCancel();
  for (auto& stream : streams_) stream->Finish();
}

UnreadCalls::UnreadCalls(const std::string& target, const v1::ExecuteRequest& request, int count)
    : wire_(target) {
  for (int i = 0; i < count; ++i) {
    calls_.push_back(std::make_unique<Call>());
    Call& call = *calls_.back();
    call.reader = wire_.compute().AsyncExecute(&call.context, request, &queue_);
    call.reader->Finish(&call.response, &call.status, &call);
  }
}

UnreadCalls::~UnreadCalls() {
  for (auto& call : calls_) call->context.TryCancel();
  void* tag = nullptr;
  bool ok = false;
  for (size_t i = 0; i < calls_.size(); ++i) queue_.Next(&tag, &ok);
  queue_.Shutdown();
}

UnfinishedCalls::UnfinishedCalls(const std::string& target, int count, int64_t message_bytes)
    : peer_({.target = target}) {
  if (!peer_.Handshake()) return;
  peer_.Send(BeginCall(1, "/gemmd.v1.DeviceService/GetServerInfo") +
             Frame(FrameType::kData, kEndStream, 1, Message("")));
  const absl::Time admitted_by = absl::Now() + kHoardPatience;
  while (peer_.data(1).empty() && absl::Now() < admitted_by) peer_.Read(absl::Milliseconds(20));
  std::vector<int64_t> left(static_cast<size_t>(count), message_bytes - 1);
  for (int i = 0; i < count; ++i) {
    const auto stream = static_cast<uint32_t>(2 * i + 3);
    const std::string prefix = Prefix(message_bytes);
    peer_.Send(BeginCall(stream, "/gemmd.v1.ComputeService/Execute") +
               Frame(FrameType::kData, kNoFlags, stream, prefix));
    peer_.Sent(stream, static_cast<int64_t>(prefix.size()));
  }
  absl::Time moved = absl::Now();
  bool all = false;
  while (!all && peer_.open() && absl::Now() - moved < kHoardPatience) {
    all = true;
    for (int i = 0; i < count; ++i) {
      if (SendSome(static_cast<uint32_t>(2 * i + 3), left[i])) moved = absl::Now();
      all = all && left[i] == 0;
    }
    peer_.Read(all ? absl::ZeroDuration() : absl::Milliseconds(1));
  }
}

bool UnfinishedCalls::SendSome(uint32_t stream, int64_t& left) {
  const int64_t bytes =
      std::min({left, peer_.connection_window(), peer_.stream_window(stream), kHoardFrameBytes});
  if (bytes <= 0) return false;
  const std::string data(static_cast<size_t>(bytes), 'x');
  if (!peer_.Send(Frame(FrameType::kData, kNoFlags, stream, data))) return false;
  peer_.Sent(stream, bytes);
  left -= bytes;
  sent_bytes_ += bytes;
  return true;
}

}  // namespace gemmd::hostile
