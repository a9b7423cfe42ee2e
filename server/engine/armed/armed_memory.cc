#include "server/engine/armed/armed_memory.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/memory_fence.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

using Word = std::atomic_ref<uint32_t>;

// Word by word: the client reads while we write.
void StoreBytes(void* target, const void* source, size_t bytes) {
  auto* words = static_cast<uint32_t*>(target);
  for (size_t i = 0; i < bytes / sizeof(uint32_t); ++i) {
    uint32_t word;
    std::memcpy(&word, static_cast<const char*>(source) + i * sizeof(word), sizeof(word));
    Word(words[i]).store(word, std::memory_order_relaxed);
  }
}

void CopyText(std::string_view text, char* target, size_t size) { text.copy(target, size - 1); }

uint64_t Nanoseconds(absl::Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Nanoseconds(duration)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArmedMemory>> ArmedMemory::Create(kernels::Backend& backend,
                                                                 int slots) {
  const auto count = static_cast<uint32_t>(slots);
  GEMMD_ASSIGN_OR_RETURN(auto memory, backend.Allocate(gemmd_armed_size_bytes(count),
                                                       kernels::MemoryKind::kHostShared));
  void* host = mmap(nullptr, gemmd_armed_size_bytes(count), PROT_READ | PROT_WRITE, MAP_SHARED,
                    memory->shared_fd(), 0);
  if (host == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mapping the armed region of ", gemmd_armed_size_bytes(count),
                     " bytes failed: ", std::strerror(errno), "; ask for fewer slots"));
  }
  return std::unique_ptr<ArmedMemory>(new ArmedMemory(std::move(memory), host, count));
}

ArmedMemory::ArmedMemory(std::unique_ptr<kernels::Memory> memory, void* host, uint32_t slots)
    : memory_(std::move(memory)),
      host_(host),
      slots_(slots),
      seq_(slots),
      host_done_(slots),
      failed_(slots) {
  gemmd_armed_header& to = header();  // nobody else has it yet, and all of it is 0
  to.magic = GEMMD_ARMED_MAGIC;
  to.version = GEMMD_ARMED_VERSION;
  to.slots = slots;
  to.gates_offset = gemmd_armed_gates_offset(slots);
  to.args_offset = gemmd_armed_args_offset(slots);
  to.done_offset = gemmd_armed_done_offset(slots);
  to.reports_offset = gemmd_armed_reports_offset(slots);
  to.size_bytes = gemmd_armed_size_bytes(slots);
}

ArmedMemory::~ArmedMemory() { munmap(host_, gemmd_armed_size_bytes(slots_)); }

bool ArmedMemory::Rung(int slot) const {
  return Word(*gemmd_armed_gate(host_, slots_, slot)).load(std::memory_order_relaxed) !=
         GEMMD_ARMED_IDLE;
}

// Two gates at a time: there are thousands, and the poller goes through them all between two rings.
bool ArmedMemory::AnyRung(size_t line) const {
  const auto* gates = reinterpret_cast<const uint64_t*>(
      gemmd_armed_gate(host_, slots_, static_cast<uint32_t>(line) * GEMMD_ARMED_WORDS_PER_LINE));
  uint64_t any = 0;
  for (uint32_t i = 0; i < GEMMD_ARMED_WORDS_PER_LINE / 2; ++i) {
    any |= __atomic_load_n(gates + i, __ATOMIC_RELAXED);
  }
  return any != 0;
}

uint32_t ArmedMemory::TakeGate(int slot) {
  return Word(*gemmd_armed_gate(host_, slots_, slot))
      .exchange(GEMMD_ARMED_IDLE, std::memory_order_acq_rel);
}

void ArmedMemory::Reset(int slot) {
  gemmd_armed_report blank = {};
  failed_[slot] = 0;
  blank.seq = seq_[slot];
  blank.host_done = host_done_[slot];  // goes on: somebody may sleep on it
  StoreBytes(gemmd_armed_report_of(host_, slots_, slot), &blank, sizeof(blank));
  SetDone(slot, 0);
  TakeGate(slot);
}

void ArmedMemory::WriteReport(int slot, const ArmedReport& report) {
  gemmd_armed_report* to = gemmd_armed_report_of(host_, slots_, slot);
  gemmd_armed_report filled = {};
  filled.run = report.run;
  filled.device_ns = Nanoseconds(report.device_time);
  filled.queued_ns = Nanoseconds(report.queued);
  filled.taken_ns = static_cast<uint64_t>(absl::ToUnixNanos(report.taken));
  filled.code = report.status.raw_code();
  if (!report.status.ok()) ++failed_[slot];
  filled.failed = failed_[slot];
  CopyText(ReasonOf(report.status), filled.reason, sizeof(filled.reason));
  const absl::string_view message = report.status.message();
  CopyText({message.data(), message.size()}, filled.message, sizeof(filled.message));
  Word(to->seq).store(++seq_[slot], std::memory_order_relaxed);
  MemoryFence(std::memory_order_release);
  StoreBytes(&to->run, &filled.run, sizeof(filled) - offsetof(gemmd_armed_report, run));
  Word(to->seq).store(++seq_[slot], std::memory_order_release);
  Word(to->host_done).store(++host_done_[slot], std::memory_order_release);
}

void ArmedMemory::SetDone(int slot, uint32_t value) {
  Word(gemmd_armed_done_of(host_, slots_, slot)->done).store(value, std::memory_order_release);
}

void ArmedMemory::WakeWaiters(int slot) {
  // With the fence of a caller between its count and its look at host_done: one of us sees the
  // other.
  MemoryFence();
  if (Word(gemmd_armed_done_of(host_, slots_, slot)->waiters).load(std::memory_order_relaxed) ==
      0) {
    return;
  }
  // Fails only for an address that is none, and ours is one.
  syscall(SYS_futex, &gemmd_armed_report_of(host_, slots_, slot)->host_done, FUTEX_WAKE, INT_MAX,
          nullptr, nullptr, 0);
}

std::byte* ArmedMemory::DoneOnDevice(int slot) const {
  return memory_->address() + gemmd_armed_done_offset(slots_) + slot * sizeof(gemmd_armed_done) +
         offsetof(gemmd_armed_done, done);
}

void ArmedMemory::SetPollerSleeps(bool sleeps) {
  Word(header().poller_sleeps).store(sleeps ? 1 : 0, std::memory_order_relaxed);
}

void ArmedMemory::SetEnded() {
  Word(header().state).store(GEMMD_ARMED_ENDED, std::memory_order_release);
}

}  // namespace gemmd::server
