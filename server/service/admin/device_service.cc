#include "gemmd/v1/device_service.grpc.pb.h"
#include "server/engine/armed/armed_plans.h"
#include "server/engine/version.h"
#include "server/service/services.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/rpcs.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::Status GetServerInfo(Call& call, const v1::GetServerInfoRequest&, v1::ServerInfo* response) {
  ServerState& state = call.state();
  response->set_version(kVersion);
  response->set_instance_id(state.instance_id());
  *response->mutable_start_time() = ToProto(state.start_time());
  response->set_tenant(call.tenant().name());
  response->set_draining(state.draining());
  if (state.share() != nullptr) response->set_share_socket(state.share()->address());
  response->set_under_mps(state.armed().under_mps());
  const Limits& limits = call.tenant().limits();
  v1::Limits* proto = response->mutable_limits();
  proto->set_max_message_bytes(limits.max_message_bytes);
  proto->set_max_ops(limits.max_ops);
  proto->set_max_inline_bytes(limits.max_inline_bytes);
  proto->set_max_sessions(limits.max_sessions);
  proto->set_max_buffers(limits.max_buffers);
  int64_t device_bytes = 0;
  for (const auto& device : state.devices()) {
    device_bytes += device->backend().info().memory_bytes;
  }
  proto->set_max_buffer_bytes(limits.max_buffer_bytes > 0 ? limits.max_buffer_bytes : device_bytes);
  proto->set_max_plans(limits.max_plans);
  proto->set_max_armed(limits.max_armed);
  proto->set_max_queued_programs(limits.max_queued_programs);
  proto->set_window_batches(limits.window_batches);
  return absl::OkStatus();
}

void SetSensors(const kernels::SensorReading& reading, v1::DeviceSensors& proto) {
  proto.set_memory_total_bytes(reading.memory_total_bytes);
  proto.set_memory_used_bytes(reading.memory_used_bytes);
  proto.set_clock_mhz(reading.clock_hz / 1e6);
  proto.set_memory_clock_mhz(reading.memory_clock_hz / 1e6);
  proto.set_power_watts(reading.power_watts);
  proto.set_power_limit_watts(reading.power_limit_watts);
  proto.set_temperature_celsius(reading.temperature_celsius);
}

absl::Status ListDevices(Call& call, const v1::ListDevicesRequest&,
                         v1::ListDevicesResponse* response) {
  for (const auto& device : call.state().devices()) {
    const kernels::DeviceInfo& info = device->backend().info();
    const DeviceStats stats = device->stats();
    v1::Device* proto = response->add_devices();
    proto->set_name(info.name);
    proto->set_model(info.model);
    proto->set_architecture(info.architecture);
    proto->set_state(device->fenced() ? v1::Device::STATE_FENCED : v1::Device::STATE_SERVING);
    proto->set_memory_bytes(info.memory_bytes);
    proto->set_used_bytes(device->used_bytes());
    proto->set_buffers(device->buffers());
    proto->set_queued_programs(stats.queued + stats.launched);
    proto->set_queued_device_seconds(stats.queued_seconds);
    proto->set_busy_seconds(stats.busy_seconds);
    proto->set_programs(stats.completed);
    if (info.sensors != nullptr) SetSensors(info.sensors->Read(), *proto->mutable_sensors());
    proto->set_gpu_uuid(info.gpu_uuid);
    if (info.numa_node >= 0) proto->set_numa_node(info.numa_node);
    proto->set_pinned_bytes(device->backend().pinned_bytes());
    proto->set_transfer_seconds(stats.transfer_seconds);
  }
  return absl::OkStatus();
}

absl::Status ListKernels(Call& call, const v1::ListKernelsRequest& request,
                         v1::ListKernelsResponse* response) {
  GEMMD_RETURN_IF_ERROR(call.state().FindDevice(request.device()).status());
  for (const auto& device : call.state().devices()) {
    if (!request.device().empty() && device->name() != request.device()) continue;
    for (const kernels::KernelInfo& kernel : device->backend().kernels()) {
      v1::Kernel* proto = response->add_kernels();
      proto->set_device(device->name());
      proto->set_name(kernel.name);
      proto->set_family(kernel.family);
      proto->set_description(kernel.description);
      proto->set_why_off(kernel.why_off);
      proto->set_quarantined(kernel.quarantined);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<grpc::Service> MakeDeviceService(ServiceContext& context) {
  auto rpcs = std::make_unique<Rpcs<v1::DeviceService>>(context);
  rpcs->Serve(GetServerInfo);
  rpcs->Serve(ListDevices);
  rpcs->Serve(ListKernels);
  return rpcs;
}

}  // namespace gemmd::server
