// SpanQueue: sampled calls, batches of Queue streams and runs of armed plans on their way to a
// collector of traces. Whoever answers one puts it in, one exporter takes them out.
//
//   if (spans.Samples(std::nullopt)) { ... spans.Offer(std::move(call)); }
//   std::vector<CallSpan> batch = spans.Take(stop_by);
//
// A call never waits for the collector: what finds no room is dropped and counted.

#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace gemmd::server {

// A part of it that took time.
struct SpanPart {
  enum class Kind { kQueue, kDevice, kTransfer };

  Kind kind = Kind::kQueue;
  absl::Time begin;
  absl::Duration duration;
  std::string device;  // of a program on several, all of them
  std::string kernel;  // kDevice: of the op that took longest; may be empty
  int64_t ops = 0;     // kDevice
  int64_t bytes = 0;   // kTransfer
};

// A call, a batch or a run of an armed plan, as it ended. Ids are lower-case hex, as W3C's trace
// context has them.
struct CallSpan {
  enum class Kind { kCall, kBatch, kArmedRun };

  Kind kind = Kind::kCall;
  std::string trace_id;   // 32 digits
  std::string span_id;    // 16
  std::string parent_id;  // 16; empty: the trace begins here
  std::string method;     // "Execute"; empty of an armed run, which is none
  std::string tenant;     // empty when nobody known called
  std::string request;    // as the log has it; likewise
  int64_t number = 0;     // a batch's sequence; an armed run's slot
  std::string code = "OK";
  std::string reason;   // empty with OK
  std::string message;  // likewise
  absl::Time begin;
  absl::Duration duration;
  std::vector<SpanPart> parts;

  size_t spans() const { return 1 + parts.size(); }
  void SetStatus(const absl::Status& status);
};

// Thread-safe.
class SpanQueue {
 public:
  // `share`: of what has no caller's trace. Off, it samples nothing.
  SpanQueue(bool on, double share, size_t most_calls = 4096)
      : on_(on), share_(share), most_calls_(most_calls) {}

  bool on() const { return on_; }
  // Whether to keep this one. `caller_samples`: whether the trace that the caller sent is sampled.
  bool Samples(std::optional<bool> caller_samples) const;

  void Offer(CallSpan call) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until there are calls, or Stop; gives all there are.
  std::vector<CallSpan> Take() ABSL_LOCKS_EXCLUDED(mutex_);
  // From now on Take waits for nothing.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);
  bool stopped() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Spans, parts counted: those that found no room, that the collector has, and that it refused or
  // could not be given.
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  int64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  int64_t failed() const { return failed_.load(std::memory_order_relaxed); }
  void CountSent(int64_t spans) { sent_.fetch_add(spans, std::memory_order_relaxed); }
  void CountFailed(int64_t spans) { failed_.fetch_add(spans, std::memory_order_relaxed); }

 private:
  const bool on_;
  const double share_;
  const size_t most_calls_;
  std::atomic<int64_t> dropped_{0}, sent_{0}, failed_{0};
  mutable absl::Mutex mutex_;
  std::vector<CallSpan> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// 32 hex digits and 16, not all 0: for a trace and a span that begin here.
std::string NewTraceId();
std::string NewSpanId();

}  // namespace gemmd::server
