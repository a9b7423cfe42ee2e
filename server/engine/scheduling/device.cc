#include "server/engine/scheduling/device.h"

#include <utility>

#include "prometheus/gauge.h"

namespace gemmd::server {

Device::Device(std::unique_ptr<kernels::Backend> backend, const SchedulerConfig& config,
               const Clock& clock, Metrics& metrics, Timeline& timeline)
    : backend_(std::move(backend)),
      tuner_(backend_->tuner()),
      serving_gauge_(metrics.DeviceState(backend_->info().name, "serving")),
      fenced_gauge_(metrics.DeviceState(backend_->info().name, "fenced")),
      buffers_gauge_(metrics.Buffers(backend_->info().name)),
      bytes_gauges_{&metrics.BufferBytes(backend_->info().name, "device"),
                    &metrics.BufferBytes(backend_->info().name, "host_shared"),
                    &metrics.BufferBytes(backend_->info().name, "device_shared"),
                    &metrics.BufferBytes(backend_->info().name, "device_imported")},
      lane_(*backend_, config, clock, metrics, timeline) {
  if (!backend_->info().gpu_uuid.empty()) {
    transfers_ =
        std::make_unique<Lane>(*backend_, config, clock, metrics, timeline, LaneKind::kTransfers);
  }
  serving_gauge_.Set(1);
  fenced_gauge_.Set(0);
  prometheus::Gauge& enabled = metrics.Kernels(name(), "enabled");
  prometheus::Gauge& disabled = metrics.Kernels(name(), "disabled");
  prometheus::Gauge& quarantined = metrics.Kernels(name(), "quarantined");
  for (const kernels::KernelInfo& kernel : backend_->kernels()) {
    if (kernel.quarantined) {
      quarantined.Increment();
      metrics.KernelQuarantined(name(), kernel.name).Set(1);
    } else {
      (kernel.why_off.empty() ? enabled : disabled).Increment();
    }
  }
}

DeviceStats Device::stats() const {
  DeviceStats stats{lane_.stats()};
  if (transfers_ == nullptr) return stats;
  const LaneStats transfers = transfers_->stats();
  stats.queued += transfers.queued;
  stats.launched += transfers.launched;
  stats.queued_seconds += transfers.queued_seconds;
  stats.completed += transfers.completed;
  stats.transfer_seconds = transfers.busy_seconds;
  return stats;
}

void Device::CancelSession(uint64_t session_key, const absl::Status& status) {
  lane_.CancelSession(session_key, status);
  if (transfers_ != nullptr) transfers_->CancelSession(session_key, status);
}

void Device::CancelAll(const absl::Status& status) {
  lane_.CancelAll(status);
  if (transfers_ != nullptr) transfers_->CancelAll(status);
}

void Device::Reconfigure(const SchedulerConfig& config) {
  lane_.Reconfigure(config);
  if (transfers_ != nullptr) transfers_->Reconfigure(config);
}

void Device::Stop() {
  lane_.Stop();
  if (transfers_ != nullptr) transfers_->Stop();
}

bool Device::NoteFault() {
  if (fenced() || backend_->health().ok()) return false;
  fenced_.store(true, std::memory_order_relaxed);
  serving_gauge_.Set(0);
  fenced_gauge_.Set(1);
  return true;
}

prometheus::Gauge& Device::BytesGauge(kernels::MemoryKind kind) {
  return *bytes_gauges_[static_cast<size_t>(kind)];
}

bool Device::TakesMemory(kernels::MemoryKind kind) const {
  switch (kind) {
    case kernels::MemoryKind::kDeviceImported:
      return false;
    case kernels::MemoryKind::kHostShared:
      return backend_->info().gpu_uuid.empty();
    default:
      return true;
  }
}

void Device::AddBuffer(kernels::MemoryKind kind, int64_t bytes) {
  buffers_.fetch_add(1, std::memory_order_relaxed);
  if (TakesMemory(kind)) {
    used_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  buffers_gauge_.Increment();
  BytesGauge(kind).Increment(static_cast<double>(bytes));
}

void Device::RemoveBuffer(kernels::MemoryKind kind, int64_t bytes) {
  buffers_.fetch_sub(1, std::memory_order_relaxed);
  if (TakesMemory(kind)) {
    used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  buffers_gauge_.Decrement();
  BytesGauge(kind).Decrement(static_cast<double>(bytes));
}

}  // namespace gemmd::server
