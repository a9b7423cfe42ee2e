#include "server/processor_wake.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace gemmd::server {

absl::StatusOr<std::unique_ptr<ProcessorWake>> ProcessorWake::Create(absl::Duration most,
                                                                     const std::string& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("scheduler.processor_wake_us: cannot write ", file, ": ",
                     absl::ErrnoToStatus(errno, "").message(),
                     "; give gemmd's user and container that file, or leave the field out"));
  }
  close(fd);
  return absl::WrapUnique(
      new ProcessorWake(static_cast<int32_t>(absl::ToInt64Microseconds(most)), file));
}

void ProcessorWake::Watch(int64_t done, int64_t under_way, absl::Time now) {
  if (done != done_ || under_way > 0) last_work_ = now;
  done_ = done;
  if (now - last_work_ < kStays) {
    Hold();
  } else {
    Release();
  }
}

// What fails here is tried again at the next look: without it calls are slower, no more.
void ProcessorWake::Hold() {
  if (held()) return;
  fd_ = open(file_.c_str(), O_WRONLY | O_CLOEXEC);
  if (held() && write(fd_, &most_us_, sizeof(most_us_)) != sizeof(most_us_)) Release();
}

void ProcessorWake::Release() {
  if (held()) close(std::exchange(fd_, -1));
}

}  // namespace gemmd::server
