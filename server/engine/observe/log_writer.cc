#include "server/engine/observe/log_writer.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace gemmd::server {
namespace {

bool AwaitRoom(int fd, absl::Duration patience) {
  pollfd room = {fd, POLLOUT, 0};
  const int64_t ms = std::max<int64_t>(0, absl::ToInt64Milliseconds(patience));
  return poll(&room, 1, patience == absl::InfiniteDuration() ? -1 : static_cast<int>(ms)) > 0;
}

// How many bytes were written before an error. Blocks for as long as the reader likes.
size_t WriteAll(int fd, std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written < 0 && errno == EAGAIN) {
      AwaitRoom(fd, absl::InfiniteDuration());  // somebody else made the descriptor non-blocking
    } else if (written == 0 || errno != EINTR) {
      break;
    }
  }
  return done;
}

// Whole lines of at most PIPE_BUF bytes: a pipe takes so many at once or not at all, so that the
// lines of processes that share it never mix.
std::string_view FirstLines(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text;
  const size_t end = text.rfind('\n', PIPE_BUF - 1);
  return text.substr(0, end == text.npos ? PIPE_BUF : end + 1);
}

}  // namespace

struct LogWriter::State {
  State(const Options& options, DroppedLine line)
      : fd(options.fd), max_bytes(options.max_queued_bytes), dropped_line(std::move(line)) {}

  // The thread, until `stopping` and nothing is left.
  void Run() ABSL_LOCKS_EXCLUDED(mutex) {
    std::string lines;
    while (Take(lines)) {
      for (std::string_view rest = lines; !rest.empty();) {
        const std::string_view piece = FirstLines(rest);
        WritePiece(piece);
        rest.remove_prefix(piece.size());
        absl::MutexLock lock(&mutex);
        queued_bytes -= piece.size();
      }
    }
  }

  // All that is queued, once anything is. False when nothing more will come.
  bool Take(std::string& lines) ABSL_LOCKS_EXCLUDED(mutex) {
    lines.clear();
    absl::MutexLock lock(&mutex);
    if (pending.empty()) QueueDroppedLine();
    mutex.Await(absl::Condition(
        +[](State* state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mutex) {
          return !state->pending.empty() || state->stopping;
        },
        this));
    lines.swap(pending);
    ended = lines.empty();
    return !ended;
  }

  void WritePiece(std::string_view piece) {
    const size_t lead = torn ? 1 : 0;
    const size_t done = WriteAll(fd, std::string(lead, '\n').append(piece));
    const size_t done_of_piece = done - std::min(done, lead);
    if (done_of_piece == piece.size()) {
      torn = false;
      if (failed > 0 && WriteAll(fd, dropped_line(failed)) > 0) failed = 0;
      return;
    }
    if (done_of_piece > 0) torn = piece[done_of_piece - 1] != '\n';
    const std::string_view left = piece.substr(done_of_piece);
    const int64_t lost = std::count(left.begin(), left.end(), '\n');
    failed += lost;
    dropped.fetch_add(lost, std::memory_order_relaxed);
  }

  void Queue(std::string_view line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    pending += line;
    queued_bytes += line.size();
  }

  // Where the lines that it tells of are missing.
  void QueueDroppedLine() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    shedding = false;
    if (no_room > 0) Queue(dropped_line(std::exchange(no_room, 0)));
  }

  const int fd;
  const size_t max_bytes;
  const DroppedLine dropped_line;
  std::atomic<int64_t> dropped{0};

  // The thread's.
  int64_t failed = 0;  // lines that could not be written, since the last line that told of them
  bool torn = false;   // the last byte written ends no line

  absl::Mutex mutex;
  std::string pending ABSL_GUARDED_BY(mutex);
  size_t queued_bytes ABSL_GUARDED_BY(mutex) = 0;  // pending and what the thread has taken
  int64_t no_room ABSL_GUARDED_BY(mutex) = 0;      // lines dropped since the last that told of them
  bool shedding ABSL_GUARDED_BY(mutex) = false;    // lines are dropped until half the queue is free
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

LogWriter::LogWriter(const Options& options, DroppedLine dropped_line)
    : state_(std::make_shared<State>(options, std::move(dropped_line))),
      patience_(options.patience),
      thread_([state = state_] { state->Run(); }) {}

LogWriter::~LogWriter() {
  bool ended = false;
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
    ended = state_->mutex.AwaitWithTimeout(absl::Condition(&state_->ended), patience_);
  }
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();  // in a write; it ends with the process
  }
}

void LogWriter::Write(std::string_view line, bool urgent) {
  absl::MutexLock lock(&state_->mutex);
  const size_t limit = urgent ? state_->max_bytes : state_->max_bytes / 4 * 3;
  if (state_->queued_bytes <= state_->max_bytes / 2) state_->QueueDroppedLine();
  if ((state_->shedding && !urgent) || state_->queued_bytes + line.size() > limit) {
    state_->shedding = true;
    ++state_->no_room;
    state_->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  state_->Queue(line);
}

bool LogWriter::Flush(absl::Duration patience) {
  absl::MutexLock lock(&state_->mutex);
  return state_->mutex.AwaitWithTimeout(
      absl::Condition(
          +[](size_t* queued) { return *queued == 0; }, &state_->queued_bytes),
      patience);
}

int64_t LogWriter::dropped() const { return state_->dropped.load(std::memory_order_relaxed); }

void WriteWithin(int fd, std::string_view text, absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (!text.empty() && AwaitRoom(fd, deadline - absl::Now())) {
    const ssize_t written = write(fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace gemmd::server
