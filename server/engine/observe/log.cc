#include "server/engine/observe/log.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/engine/observe/log_escape.h"
#include "server/engine/observe/log_writer.h"

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

}  // namespace

Log::Log(const LogConfig& config, Sink sink)
    : level_(config.level),
      sample_calls_(config.sample_calls),
      style_(new Style{config.format, config.process}),
      writer_(
          sink != nullptr
              ? nullptr
              : std::make_unique<LogWriter>(
                    LogWriter::Options(),
                    [style = style_](int64_t count) {
                      return Line(*style, LogLevel::kWarning, "log_dropped", {{"count", count}});
                    })),
      sink_(std::move(sink)) {}

Log::~Log() = default;

void Log::Configure(const LogConfig& config) {
  style_->format.store(config.format, std::memory_order_relaxed);
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

std::string Log::Line(const Style& style, LogLevel level, std::string_view event, Fields fields) {
  const bool json = style.format.load(std::memory_order_relaxed) == LogFormat::kJson;
  std::string line = Head(json, level, event);
  if (!style.process.empty()) AppendField(json, {"process", style.process}, line);
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
  return line;
}

void Log::Write(LogLevel level, std::string_view event, Fields fields) {
  if (enabled(level)) Put(Line(*style_, level, event, fields), level >= LogLevel::kWarning);
}

void Log::Always(LogLevel level, std::string_view event, Fields fields) {
  Put(Line(*style_, level, event, fields), /*urgent=*/true);
}

void Log::Put(const std::string& line, bool urgent) {
  if (writer_ != nullptr) return writer_->Write(line, urgent);
  absl::MutexLock lock(&sink_mutex_);
  sink_(line);
}

bool Log::Flush(absl::Duration patience) { return writer_ == nullptr || writer_->Flush(patience); }

int64_t Log::dropped() const { return writer_ == nullptr ? 0 : writer_->dropped(); }

}  // namespace gemmd::server
