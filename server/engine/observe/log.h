// Structured logs: one event a line on stderr, as text or JSON. Values are escaped, so nothing a
// client sends can forge a line; events and keys are literals of ours. A value is cut after 512
// bytes ("..." follows). Fields beyond a line of 4096 bytes (PIPE_BUF, up to which a write to a
// pipe is atomic) are left out, and truncated=true says so. Where several processes write one log,
// process= tells which. A log that nobody reads loses lines, and stops nobody (log_writer.h).
//
//   log.Info("session_opened", {{"session", name}, {"ttl_ms", absl::ToInt64Milliseconds(ttl)}});

#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/engine/config.h"

namespace gemmd::server {

class LogWriter;

struct LogField {
  std::string_view key;
  std::variant<std::string_view, int64_t, double, bool> value;

  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(std::string_view(v)) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(std::string_view(v)) {}
  template <std::integral Int>
  requires(!std::same_as<Int, bool>) LogField(std::string_view k, Int v)
      : key(k), value(static_cast<int64_t>(v)) {}
  LogField(std::string_view k, double v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v) {}
};

// Thread-safe. Lines are written whole and in order, by a thread of the log's own.
class Log {
 public:
  // For tests; the default writes to stderr. `line` ends in a newline; one call at a time.
  using Sink = absl::AnyInvocable<void(std::string_view line)>;
  explicit Log(const LogConfig& config, Sink sink = nullptr);
  // Waits for what is queued, for a second at most.
  ~Log();

  // At run time: a reload's, and an admin's. `process` stays what it was.
  void Configure(const LogConfig& config);
  void Set(LogLevel level, int sample_calls);
  LogLevel level() const { return level_.load(std::memory_order_relaxed); }
  int sample_calls() const { return sample_calls_.load(std::memory_order_relaxed); }
  bool enabled(LogLevel level) const { return level >= level_.load(std::memory_order_relaxed); }
  // True for the calls that sampling picks: one in LogConfig::sample_calls.
  bool SampleCall();

  // A braced list of {key, value}, or a vector of them.
  using Fields = absl::Span<const LogField>;
  void Debug(std::string_view event, Fields fields) { Write(LogLevel::kDebug, event, fields); }
  void Info(std::string_view event, Fields fields) { Write(LogLevel::kInfo, event, fields); }
  void Warning(std::string_view event, Fields fields) { Write(LogLevel::kWarning, event, fields); }
  void Error(std::string_view event, Fields fields) { Write(LogLevel::kError, event, fields); }

  void Write(LogLevel level, std::string_view event, Fields fields);
  // Whatever level is set: an audit has no gap because somebody asked for fewer lines.
  void Always(LogLevel level, std::string_view event, Fields fields);

  // Waits until every line so far is written, for whoever is about to end the process. False when
  // that takes longer than `patience`.
  bool Flush(absl::Duration patience);
  // Lines that were lost because nobody read them, or the disk was full.
  int64_t dropped() const;

 private:
  // What lines look like.
  struct Style {
    std::atomic<LogFormat> format;
    const std::string process;
  };
  static std::string Line(const Style& style, LogLevel level, std::string_view event,
                          Fields fields);
  // The last quarter of the writer's queue is for `urgent` lines.
  void Put(const std::string& line, bool urgent);

  std::atomic<LogLevel> level_;
  std::atomic<int> sample_calls_;
  std::atomic<uint64_t> calls_{0};
  const std::shared_ptr<Style> style_;       // the writer's thread may outlive the log
  const std::unique_ptr<LogWriter> writer_;  // null where there is a sink
  absl::Mutex sink_mutex_;
  Sink sink_ ABSL_GUARDED_BY(sink_mutex_);
};

}  // namespace gemmd::server
