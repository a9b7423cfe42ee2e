// Device: a backend, the lanes that feed it, and the counts that describe it.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "server/engine/observe/metrics.h"
#include "server/engine/scheduling/lane.h"
#include "server/engine/sessions/kept_program.h"

namespace prometheus {
class Gauge;
}

namespace gemmd::server {

// Both lanes' counts together, but for the time: a GPU's processors and its copy engine are busy at
// once.
struct DeviceStats : LaneStats {  // busy_seconds: of programs
  double transfer_seconds = 0;
};

class Device {
 public:
  Device(std::unique_ptr<kernels::Backend> backend, const SchedulerConfig& config,
         const Clock& clock, Metrics& metrics, Timeline& timeline);

  const std::string& name() const { return backend_->info().name; }
  kernels::Backend& backend() { return *backend_; }
  Lane& lane() { return lane_; }
  // Of programs that do nothing but copy between the device's memory and the host's: on a GPU a
  // lane of its own, whose work the copy engine does beside the other's; elsewhere that one.
  // Nothing is in order between the two.
  Lane& transfers() { return transfers_ != nullptr ? *transfers_ : lane_; }

  // Another number each time that kernels are chosen by other times; 0 where nothing is measured.
  uint64_t tuning() const { return tuner_ == nullptr ? 0 : tuner_->generation(); }

  // Programs of plans, to be compiled anew when those have changed.
  RenewablePrograms& renewable() { return renewable_; }
  void RenewPrograms() { renewable_.RenewAll(*backend_); }

  // These are both lanes'.
  DeviceStats stats() const;
  void CancelSession(uint64_t session_key, const absl::Status& status);
  void CancelAll(const absl::Status& status);
  void Reconfigure(const SchedulerConfig& config);
  void Stop();

  // Looks whether the backend's device has faulted. True the first time that it has. One thread at
  // a time.
  bool NoteFault();
  // As NoteFault found it: takes no work, for good. Thread-safe.
  bool fenced() const { return fenced_.load(std::memory_order_relaxed); }

  // Kept by Buffer. used_bytes() counts what was taken of the device's memory: not what a client
  // brought along, nor, on a GPU, what clients share with the host.
  void AddBuffer(kernels::MemoryKind kind, int64_t bytes);
  void RemoveBuffer(kernels::MemoryKind kind, int64_t bytes);
  int64_t buffers() const { return buffers_.load(std::memory_order_relaxed); }
  int64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  prometheus::Gauge& BytesGauge(kernels::MemoryKind kind);
  bool TakesMemory(kernels::MemoryKind kind) const;

  std::unique_ptr<kernels::Backend> backend_;
  const kernels::Tuner* const tuner_;  // the backend's; null: it has none
  RenewablePrograms renewable_;
  prometheus::Gauge& serving_gauge_;
  prometheus::Gauge& fenced_gauge_;
  std::atomic<bool> fenced_{false};
  prometheus::Gauge& buffers_gauge_;
  // By MemoryKind.
  const std::array<prometheus::Gauge*, 4> bytes_gauges_;
  std::atomic<int64_t> buffers_{0};
  std::atomic<int64_t> used_bytes_{0};
  // Last: their streams end before the backend does.
  Lane lane_;
  std::unique_ptr<Lane> transfers_;  // null: not on a GPU
};

}  // namespace gemmd::server
