#include "client/armed/region.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "client/armed/words.h"

namespace gemmd::armed {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{250};  // at the session's state
// After the end, a stream runs into the waits that were queued before, one after the other.
constexpr std::chrono::microseconds kEndingTick{20};
constexpr std::chrono::microseconds kLongestEndingTick{10'000};

constexpr char kDaemonGone[] =
    "the daemon has ended; open a session of the one that serves now, and arm the plan again";
constexpr char kSessionGone[] =
    "the session has ended, and its armed plans with it; open another and arm the plan again";

std::string Bytes(int64_t count) { return std::to_string(count) + " bytes"; }

Outcome SystemError(const char* what) {
  return {Code::kInternal, std::string("armed region: ") + what + ": " + std::strerror(errno)};
}

}  // namespace

std::shared_ptr<Region> Region::Open(RegionParts parts, Outcome& why) {
  std::shared_ptr<Region> region(new Region);
  region->process_ = getpid();
  region->wake_fd_ = parts.wake_fd;
  region->slots_ = static_cast<uint32_t>(parts.slots);
  region->share_socket_ = parts.share_socket;
  if (parts.layout_version != static_cast<int32_t>(GEMMD_ARMED_VERSION)) {
    why = {Code::kFailedPrecondition,
           "the server's armed region has layout " + std::to_string(parts.layout_version) +
               ", this client knows " + std::to_string(GEMMD_ARMED_VERSION) +
               "; update the older one"};
  } else if (parts.slots <= 0 || parts.slots > static_cast<int32_t>(GEMMD_ARMED_MAX_SLOTS) ||
             parts.size_bytes < gemmd_armed_size_bytes(region->slots_)) {
    why = {Code::kInternal, "the server's armed region of " + std::to_string(parts.slots) +
                                " slots has " + Bytes(parts.size_bytes)};
  } else {
    region->mapped_bytes_ = static_cast<size_t>(parts.size_bytes);
    why = region->Map(parts.memory_fd);
  }
  close(parts.memory_fd);
  if (why.ok()) why = region->daemon_.Start(parts.share_socket);
  if (!why.ok()) return nullptr;
  region->states_.resize(region->slots_);
  region->stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (region->stop_fd_ < 0) {
    why = SystemError("eventfd");
    return nullptr;
  }
  region->watcher_ = std::thread([raw = region.get()] { raw->Watch(); });
  return region;
}

Outcome Region::Map(int memory_fd) {
  struct stat file = {};
  if (fstat(memory_fd, &file) != 0 || file.st_size < static_cast<int64_t>(mapped_bytes_)) {
    return {Code::kFailedPrecondition,
            "the armed region's descriptor holds " + Bytes(file.st_size) + " of the " +
                Bytes(static_cast<int64_t>(mapped_bytes_)) + " that the server named"};
  }
  const int seals = fcntl(memory_fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return {Code::kFailedPrecondition, "the armed region is no memfd sealed against shrinking"};
  }
  // Whole pages: that is what the GPU's driver registers.
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  mapped_bytes_ = (mapped_bytes_ + page - 1) / page * page;
  void* data = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
  if (data == MAP_FAILED) return SystemError("mmap");
  data_ = data;
  const auto* header = static_cast<const gemmd_armed_header*>(data_);
  if (header->magic != GEMMD_ARMED_MAGIC) {
    return {Code::kInternal, "the server's descriptor holds no armed region"};
  }
  return {};
}

Region::~Region() {
  if (getpid() != process_) {
    // Forked since: the thread is the parent's, and so is the eventfd by which it would be stopped.
    // To join it hangs or aborts; to forget it is all that is left.
    static_cast<void>(new std::thread(std::move(watcher_)));
    registered_.clear();  // with the parent's driver
  }
  if (watcher_.joinable()) {
    stopping_.store(true);
    const uint64_t one = 1;
    (void)!write(stop_fd_, &one, sizeof(one));
    watcher_.join();
  }
  Outcome none;
  for (const Registered& one : registered_) CudaDriver::Get(none)->Unregister(one.context, data_);
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
  if (wake_fd_ >= 0) close(wake_fd_);
  if (stop_fd_ >= 0) close(stop_fd_);
}

void Region::WakePoller() const {
  Fence();
  if (Load(&static_cast<const gemmd_armed_header*>(data_)->poller_sleeps) == 0) return;
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the poller has been woken.
  (void)!write(wake_fd_, &one, sizeof(one));
}

Outcome Region::ReachBy(CudaStream stream, const std::string& gpu_uuid, Reach& reach) const {
  Outcome why;
  const CudaDriver* driver = CudaDriver::Get(why);
  if (driver == nullptr) return why;
  CudaContext context = nullptr;
  if (why = driver->ContextOf(stream, context); !why.ok()) return why;
  if (context == last_context_.load(std::memory_order_acquire)) {
    reach = last_;
    return {};
  }
  return RegisterIn(*driver, context, gpu_uuid, reach);
}

Outcome Region::Prepare(const std::string& gpu_uuid) const {
  Outcome why;
  const CudaDriver* driver = CudaDriver::Get(why);
  if (driver == nullptr) return why;
  CudaContext context = nullptr;
  if (why = driver->PrimaryContextOf(gpu_uuid, context); !why.ok()) return why;
  Reach reach;
  return RegisterIn(*driver, context, gpu_uuid, reach);
}

Outcome Region::RegisterIn(const CudaDriver& driver, CudaContext context,
                           const std::string& gpu_uuid, Reach& reach) const {
  const std::lock_guard lock(mu_);
  for (const Registered& one : registered_) {
    if (one.context == context) {
      reach = one.reach;
      return {};
    }
  }
  if (!gpu_uuid.empty()) {
    std::string found;
    if (Outcome why = driver.GpuOf(context, found); !why.ok()) return why;
    if (found != gpu_uuid) {
      return {Code::kFailedPrecondition, "the stream is of " + found + ", the plan is armed on " +
                                             gpu_uuid + "; ring from a stream of that GPU"};
    }
  }
  if (Outcome why = driver.Register(context, data_, mapped_bytes_, reach.address); !why.ok()) {
    return why;
  }
  reach.kernels = driver.RingKernelsFor(context);
  registered_.push_back({context, reach});
  if (last_context_.load(std::memory_order_relaxed) == nullptr) {
    last_ = reach;
    last_context_.store(context, std::memory_order_release);
  }
  return {};
}

uint64_t Region::TakeSlot(uint32_t slot) {
  const std::lock_guard lock(slots_mu_);
  states_[slot].given_up = false;
  return ++states_[slot].owner;
}

void Region::GiveUpSlot(uint32_t slot, uint64_t owner) {
  const std::lock_guard lock(slots_mu_);
  if (states_[slot].owner == owner) states_[slot].given_up = true;
}

Outcome Region::Ended() const {
  const char* why = ended_.load(std::memory_order_acquire);
  // The watching thread looks seldom, and a ring that the daemon takes no more must not be made.
  const uint32_t* state = &static_cast<const gemmd_armed_header*>(data_)->state;
  if (why == nullptr && Load(state) == GEMMD_ARMED_ENDED) why = kSessionGone;
  return why == nullptr ? Outcome() : Outcome(Code::kUnavailable, why);
}

void Region::Watch() {
  const uint32_t* state = &static_cast<const gemmd_armed_header*>(data_)->state;
  while (!stopping_.load() && ended_.load() == nullptr) {
    if (!daemon_.Lives(kLook, stop_fd_)) {
      End(kDaemonGone);
    } else if (Load(state) == GEMMD_ARMED_ENDED) {
      End(kSessionGone);
    } else {
      EndRingsOfGivenUpSlots();
    }
  }
  auto tick = kEndingTick;
  while (!stopping_.load()) {
    tick = EndWaits() ? kEndingTick : std::min(tick * 2, kLongestEndingTick);
    std::this_thread::sleep_for(tick);
  }
}

void Region::End(const char* why) { ended_.store(why, std::memory_order_release); }

bool Region::EndWaits() {
  bool any = false;
  const std::lock_guard lock(slots_mu_);
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    if (states_[slot].owner == 0) continue;
    if (!Replace(&done(slot)->done, 0, GEMMD_ARMED_FAILED)) continue;
    any = true;
    if (Load(&done(slot)->waiters) != 0) WakeSleepers(&report(slot)->host_done);
  }
  return any;
}

// A stream may ring a slot that was disarmed with the ring still queued: it must not wait for ever.
void Region::EndRingsOfGivenUpSlots() {
  const std::lock_guard lock(slots_mu_);
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    if (!states_[slot].given_up) continue;
    if (Replace(gate(slot), GEMMD_ARMED_RUNG, GEMMD_ARMED_IDLE)) {
      Replace(&done(slot)->done, 0, GEMMD_ARMED_FAILED);
    }
  }
}

}  // namespace gemmd::armed
