#include "client/cli/args/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace gemmd::cli {
namespace {

constexpr absl::string_view kEnter = "\033[?1049h\033[?25l";
constexpr absl::string_view kLeave = "\033[?25h\033[?1049l";

// Read by signal handlers.
volatile std::sig_atomic_t full_screen = 0;
termios as_it_was;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void Say(absl::string_view text) {
  // A terminal that has gone is seen by who reads from it.
  [[maybe_unused]] const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
}

void Enter() {
  tcgetattr(STDIN_FILENO, &as_it_was);
  termios keys = as_it_was;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  Say(kEnter);
  full_screen = 1;
}

// ^Z: the shell gets its terminal, and `fg` draws again.
void Suspend(int) {
  const int error = errno;
  LeaveFullScreen();
  std::signal(SIGTSTP, SIG_DFL);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);
  std::raise(SIGTSTP);
  std::signal(SIGTSTP, Suspend);
  Enter();
  errno = error;
}

winsize SizeOfStdout() {
  winsize size = {};
  ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  return size;
}

}  // namespace

PageFit FitOfStdout() {
  PageFit fit;
  if (isatty(STDOUT_FILENO) == 0) return fit;
  int columns = 0;
  fit.width = absl::SimpleAtoi(Environment("COLUMNS"), &columns) && columns > 0
                  ? columns
                  : SizeOfStdout().ws_col;
  const std::string terminal = Environment("TERM");
  fit.colour = Environment("NO_COLOR").empty() && !terminal.empty() && terminal != "dumb";
  return fit;
}

void LeaveFullScreen() {
  if (full_screen == 0) return;
  full_screen = 0;
  Say(kLeave);
  tcsetattr(STDIN_FILENO, TCSANOW, &as_it_was);
}

bool FullScreen::Possible() {
  return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0 && Environment("TERM") != "dumb";
}

FullScreen::FullScreen() {
  Enter();
  std::signal(SIGTSTP, Suspend);
}

FullScreen::~FullScreen() {
  std::signal(SIGTSTP, SIG_DFL);
  LeaveFullScreen();
}

PageFit FullScreen::Fit() const {
  PageFit fit = FitOfStdout();
  fit.height = std::max(SizeOfStdout().ws_row - 1, 1);
  return fit;
}

bool FullScreen::WaitForQuit(absl::Duration duration) const {
  const absl::Time end = absl::Now() + duration;
  for (;;) {
    const absl::Duration left = std::clamp(end - absl::Now(), absl::ZeroDuration(), absl::Hours(1));
    pollfd keys = {STDIN_FILENO, POLLIN, 0};
    const int ready = poll(&keys, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready < 0 && errno == EINTR) continue;
    if (ready > 0) {
      char key = 0;
      const ssize_t count = read(STDIN_FILENO, &key, 1);
      if (count == 1 && (key == 'q' || key == 'Q')) return true;
      if (count == 0 || (count < 0 && errno != EINTR)) return true;
    }
    if (absl::Now() >= end) return false;
  }
}

}  // namespace gemmd::cli
