#include "server/engine/device.h"

#include <utility>

#include "prometheus/gauge.h"

namespace gemmd::server {

Device::Device(std::unique_ptr<kernels::Backend> backend, const SchedulerConfig& config,
               const Clock& clock, Metrics& metrics)
    : backend_(std::move(backend)),
      buffers_gauge_(metrics.Buffers(backend_->info().name)),
      device_bytes_gauge_(metrics.BufferBytes(backend_->info().name, "device")),
      shared_bytes_gauge_(metrics.BufferBytes(backend_->info().name, "host_shared")),
      lane_(*backend_, config, clock, metrics) {
  metrics.DeviceState(name(), "serving").Set(1);
  metrics.DeviceState(name(), "fenced").Set(0);
}

prometheus::Gauge& Device::BytesGauge(kernels::MemoryKind kind) {
  return kind == kernels::MemoryKind::kDevice ? device_bytes_gauge_ : shared_bytes_gauge_;
}

void Device::AddBuffer(kernels::MemoryKind kind, int64_t bytes) {
  buffers_.fetch_add(1, std::memory_order_relaxed);
  used_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  buffers_gauge_.Increment();
  BytesGauge(kind).Increment(static_cast<double>(bytes));
}

void Device::RemoveBuffer(kernels::MemoryKind kind, int64_t bytes) {
  buffers_.fetch_sub(1, std::memory_order_relaxed);
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  buffers_gauge_.Decrement();
  BytesGauge(kind).Decrement(static_cast<double>(bytes));
}

}  // namespace gemmd::server
