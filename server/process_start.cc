#include "server/process_start.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "server/engine/observe/log_writer.h"
#include "server/exit_status.h"

namespace gemmd::server {
namespace {

// Idle it has mapped 1 GiB, after some work 1.7: stacks of 8 MiB, and malloc's arenas.
constexpr rlim_t kLeastAddressSpace = rlim_t{2} << 30;
// Of every thread: the limit of the first is the size of the others'. With 64 KiB the first call
// ended the process.
constexpr rlim_t kLeastStack = rlim_t{256} << 10;
// A listener of each kind takes 20; without an eventfd gRPC aborts.
constexpr rlim_t kLeastDescriptors = 32;
// Idle it has 17, after some work 21.
constexpr size_t kThreads = 24;

std::string Limit(int resource) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return absl::StrCat(limit.rlim_cur);
}

std::string WhatWasThrown() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    return "memory was refused";
  } catch (const std::system_error& error) {
    return absl::StrCat("the system refused a thread or the like (", error.what(), ")");
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of no known kind";
  }
}

[[noreturn]] void Explain() {
  const std::string what = std::current_exception() ? WhatWasThrown() : "terminated";
  WriteWithin(STDERR_FILENO,
              absl::StrCat("gemmd: ", what, "; the limits are ", Limit(RLIMIT_AS),
                           " bytes of address space (ulimit -v), ", Limit(RLIMIT_NPROC),
                           " processes and threads (ulimit -u), and those of its cgroup\n"),
              absl::Seconds(1));
  _exit(kFailed);
}

void* AwaitEnd(void* end) {
  static_cast<absl::Notification*>(end)->WaitForNotification();
  return nullptr;
}

// 0, or errno of the first that did not start. All are alive at once.
int TryThreads(size_t count) {
  absl::Notification end;
  std::vector<pthread_t> threads;
  int error = 0;
  while (threads.size() < count && error == 0) {
    pthread_t thread;
    error = pthread_create(&thread, nullptr, AwaitEnd, &end);
    if (error == 0) threads.push_back(thread);
  }
  end.Notify();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  return error;
}

}  // namespace

void OpenStandardDescriptors() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (syscall(SYS_fcntl, fd, F_GETFD) >= 0) continue;
    syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);  // takes the lowest number that is free
  }
}

void ExplainUncaughtExceptions() { std::set_terminate(Explain); }

absl::Status CheckRoom() {
  rlimit room;
  if (getrlimit(RLIMIT_AS, &room) == 0 && room.rlim_cur < kLeastAddressSpace) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the address space is limited to ", room.rlim_cur, " bytes, and gemmd takes ",
                     kLeastAddressSpace,
                     " beside its devices' memory; raise it (ulimit -v, LimitAS=), and limit "
                     "memory by the cgroup instead"));
  }
  if (getrlimit(RLIMIT_STACK, &room) == 0 && room.rlim_cur < kLeastStack) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the stack is limited to ", room.rlim_cur, " bytes, and gemmd's threads take ",
                     kLeastStack, "; raise it (ulimit -s, LimitSTACK=)"));
  }
  if (getrlimit(RLIMIT_NOFILE, &room) == 0 && room.rlim_cur < kLeastDescriptors) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the descriptors are limited to ", room.rlim_cur, ", and gemmd takes ", kLeastDescriptors,
        " and one a connection; raise it (ulimit -n, "
        "LimitNOFILE=)"));
  }
  if (const int error = TryThreads(kThreads); error != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", kThreads, " threads: ", std::strerror(error),
                     "; raise the limits of processes and threads (ulimit -u is ",
                     Limit(RLIMIT_NPROC), "; pids.max of the cgroup) or of memory"));
  }
  return absl::OkStatus();
}

}  // namespace gemmd::server
