#include "server/engine/log.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/engine/log_escape.h"

namespace gemmd::server {
namespace {

constexpr size_t kMaxValueBytes = 512;
constexpr size_t kMaxLineBytes = 4096;
constexpr size_t kTailBytes = 32;  // room for truncated=true, the closing brace and the newline

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "ERROR";
}

template <typename Number>
void AppendNumber(Number value, std::string& out) {
  char digits[32];
  const auto result = std::to_chars(digits, digits + sizeof(digits), value);
  out.append(digits, result.ptr);
}

struct ValueAppender {
  std::string& out;

  void operator()(std::string_view value) const {
    if (value.size() <= kMaxValueBytes) return AppendQuoted(value, out);
    size_t end = kMaxValueBytes;
    while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xc0) == 0x80) --end;
    AppendQuoted(std::string(value.substr(0, end)) + "...", out);
  }
  void operator()(int64_t value) const { AppendNumber(value, out); }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(double value) const {
    if (std::isfinite(value)) return AppendNumber(value, out);
    // JSON has no such numbers.
    AppendQuoted(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity", out);
  }
};

void AppendField(bool json, const LogField& field, std::string& out) {
  if (json) {
    out.push_back(',');
    AppendQuoted(field.key, out);
    out.push_back(':');
  } else {
    out.push_back(' ');
    out += field.key;
    out.push_back('=');
  }
  std::visit(ValueAppender{out}, field.value);
}

std::string Head(bool json, LogLevel level, std::string_view event) {
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
  std::string line;
  line.reserve(256);
  if (json) {
    line += "{\"time\":\"";
    line += time;
    line += "\",\"level\":\"";
    line += LevelName(level);
    line += "\",\"event\":";
    AppendQuoted(event, line);
  } else {
    line += time;
    line.push_back(' ');
    line += LevelName(level);
    line.push_back(' ');
    line += event;
  }
  return line;
}

// A log that cannot be written is lost: the work it tells of matters more.
void WriteToStderr(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    line.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

Log::Log(const LogConfig& config, Sink sink)
    : level_(config.level),
      format_(config.format),
      sample_calls_(config.sample_calls),
      process_(config.process),
      to_stderr_(sink == nullptr),
      sink_(std::move(sink)) {}

void Log::Configure(const LogConfig& config) {
  format_.store(config.format, std::memory_order_relaxed);
  Set(config.level, config.sample_calls);
}

void Log::Set(LogLevel level, int sample_calls) {
  level_.store(level, std::memory_order_relaxed);
  sample_calls_.store(sample_calls, std::memory_order_relaxed);
}

bool Log::SampleCall() {
  const int sample_calls = sample_calls_.load(std::memory_order_relaxed);
  if (sample_calls <= 0) return false;
  return calls_.fetch_add(1, std::memory_order_relaxed) % static_cast<uint64_t>(sample_calls) == 0;
}

void Log::Write(LogLevel level, std::string_view event, Fields fields) {
  if (!enabled(level)) return;
  const bool json = format_.load(std::memory_order_relaxed) == LogFormat::kJson;
  std::string line = Head(json, level, event);
  if (!process_.empty()) AppendField(json, {"process", process_}, line);
  std::string text;
  bool truncated = false;
  for (const LogField& field : fields) {
    text.clear();
    AppendField(json, field, text);
    if (line.size() + text.size() + kTailBytes > kMaxLineBytes) {
      truncated = true;
      continue;
    }
    line += text;
  }
  if (truncated) AppendField(json, {"truncated", true}, line);
  line += json ? "}\n" : "\n";
  if (to_stderr_) return WriteToStderr(line);
  absl::MutexLock lock(&sink_mutex_);
  sink_(line);
}

}  // namespace gemmd::server
