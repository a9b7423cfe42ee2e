#include "tests/client/armed/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "client/armed/words.h"

namespace gemmd::armed {
namespace {

int Must(int result) {
  if (result < 0) std::abort();
  return result;
}

}  // namespace

FakeDaemon::FakeDaemon(Program program) : program_(std::move(program)) {
  const uint32_t size = gemmd_armed_size_bytes(kSlots);
  memory_fd_ = Must(memfd_create("fake-region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Must(ftruncate(memory_fd_, size));
  Must(fcntl(memory_fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
  data_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_, 0);
  if (data_ == MAP_FAILED) std::abort();
  header()->magic = GEMMD_ARMED_MAGIC;
  header()->version = GEMMD_ARMED_VERSION;
  header()->slots = kSlots;
  wake_fd_ = Must(eventfd(0, EFD_CLOEXEC));
  // The kernel names it: autobind gives five bytes behind the zero.
  listener_ = Must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  Must(bind(listener_, reinterpret_cast<sockaddr*>(&name), sizeof(sa_family_t)));
  socklen_t length = sizeof(name);
  Must(getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &length));
  address_ = "unix-abstract:" + std::string(name.sun_path + 1, length - sizeof(sa_family_t) - 1);
  Must(listen(listener_, 16));
}

FakeDaemon::~FakeDaemon() {
  stopping_ = true;
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
  if (poller_.joinable()) poller_.join();
  munmap(data_, gemmd_armed_size_bytes(kSlots));
  close(memory_fd_);
  close(wake_fd_);
  close(listener_);
}

RegionParts FakeDaemon::Parts() const {
  return {.memory_fd = Must(dup(memory_fd_)),
          .wake_fd = Must(dup(wake_fd_)),
          .size_bytes = gemmd_armed_size_bytes(kSlots),
          .slots = kSlots,
          .layout_version = GEMMD_ARMED_VERSION,
          .share_socket = address_};
}

void FakeDaemon::Poll() {
  for (;;) {
    if (!Scan()) usleep(50);
  }
}

void FakeDaemon::StartPoller(bool sleeps) {
  poller_ = std::thread([this, sleeps] {
    while (!stopping_) {
      if (Scan()) continue;
      if (sleeps) {
        Sleep();
      } else {
        std::this_thread::yield();
      }
    }
  });
}

void FakeDaemon::Sleep() {
  Store(&header()->poller_sleeps, 1);
  Fence();
  if (!Scan() && !stopping_) {
    uint64_t count;
    (void)!read(wake_fd_, &count, sizeof(count));
    ++wakes_;
  }
  Store(&header()->poller_sleeps, 0);
}

bool FakeDaemon::Scan() {
  bool any = false;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    uint32_t* gate = gemmd_armed_gate(data_, kSlots, slot);
    if (Load(gate) == GEMMD_ARMED_IDLE) continue;
    __atomic_exchange_n(gate, GEMMD_ARMED_IDLE, __ATOMIC_ACQ_REL);
    Answer(slot, program_(slot));
    any = true;
  }
  return any;
}

void FakeDaemon::Answer(uint32_t slot, int32_t code) {
  gemmd_armed_report* report = gemmd_armed_report_of(data_, kSlots, slot);
  gemmd_armed_done* done = gemmd_armed_done_of(data_, kSlots, slot);
  Store(&report->seq, report->seq + 1);
  Fence();
  report->run += 1;
  report->device_ns = 1000 + slot;
  report->code = code;
  if (code != 0) ++report->failed;
  std::strcpy(report->reason, code == 0 ? "" : "FAKE");
  std::strcpy(report->message, code == 0 ? "" : "the program failed");
  Store(&report->seq, report->seq + 1);
  Store(&report->host_done, report->host_done + 1);
  Store(&done->done, code == 0 ? GEMMD_ARMED_RAN : GEMMD_ARMED_FAILED);
  ++runs_;
  Fence();
  if (Load(&done->waiters) != 0) WakeSleepers(&report->host_done);
}

void FakeDaemon::EndSession() { Store(&header()->state, GEMMD_ARMED_ENDED); }

uint32_t FakeDaemon::Gate(uint32_t slot) const {
  return Load(gemmd_armed_gate(data_, kSlots, slot));
}

}  // namespace gemmd::armed
