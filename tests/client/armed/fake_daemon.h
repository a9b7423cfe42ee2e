// The daemon's side of a region: its memory, its socket and a poller that runs a function for each
// ring. A poller of this process, or, to be killed, a process of its own.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "client/armed/region.h"

namespace gemmd::armed {

class FakeDaemon {
 public:
  static constexpr uint32_t kSlots = 32;
  // What a run of a slot comes to; 0 is OK.
  using Program = std::function<int32_t(uint32_t slot)>;

  explicit FakeDaemon(Program program);
  ~FakeDaemon();

  RegionParts Parts() const;  // new descriptors at each call
  // Never ends: for a child process.
  void Poll();
  // A thread that polls; `sleeps` makes it sleep on the eventfd whenever nothing is rung.
  void StartPoller(bool sleeps);
  void EndSession();
  uint32_t Gate(uint32_t slot) const;

  gemmd_armed_header* header() const { return static_cast<gemmd_armed_header*>(data_); }
  void* data() const { return data_; }
  int64_t runs() const { return runs_.load(); }
  int64_t wakes() const { return wakes_.load(); }

 private:
  bool Scan();
  void Answer(uint32_t slot, int32_t code);
  void Sleep();

  const Program program_;
  std::string address_;
  int memory_fd_ = -1;
  int wake_fd_ = -1;
  int listener_ = -1;
  void* data_ = nullptr;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> runs_{0};
  std::atomic<int64_t> wakes_{0};
  std::thread poller_;
};

}  // namespace gemmd::armed
