#include "client/cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <memory>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/args/printable.h"

namespace gemmd::cli {
namespace {

constexpr int kBarWidth = 30;

class Line {
 public:
  explicit Line(absl::string_view label)
      : label_(Printable(label)), start_(absl::Now()), last_(start_) {}

  void Update(int64_t done, int64_t total) {
    const absl::Time now = absl::Now();
    if (done >= total) {
      if (shown_) absl::FPrintF(stderr, "\r\033[K");
      shown_ = false;
      return;
    }
    if (now - start_ < absl::Milliseconds(500) || now - last_ < absl::Milliseconds(100)) return;
    last_ = now;
    shown_ = true;
    const double part = static_cast<double>(done) / static_cast<double>(total);
    const int filled = static_cast<int>(part * kBarWidth);
    absl::FPrintF(stderr, "\r%s [%s%s] %3.0f %%, %s/s\033[K", label_, std::string(filled, '#'),
                  std::string(kBarWidth - filled, ' '), part * 100,
                  HumanBytes(static_cast<double>(done) / absl::ToDoubleSeconds(now - start_)));
  }

 private:
  const std::string label_;
  const absl::Time start_;
  absl::Time last_;
  bool shown_ = false;
};

}  // namespace

std::function<void(int64_t, int64_t)> ProgressLine(const Output& out, std::string label) {
  if (out.quiet() || isatty(STDERR_FILENO) == 0) return nullptr;
  // Shared because std::function must be copyable.
  auto line = std::make_shared<Line>(label);
  return [line](int64_t done, int64_t total) { line->Update(done, total); };
}

}  // namespace gemmd::cli
