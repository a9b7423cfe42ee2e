#include "kernels/cuda/device/nvml.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "kernels/cuda/device/shared_library.h"

namespace gemmd::kernels::cuda {
namespace {

// Some values take the driver a millisecond: callers within this time share one reading.
constexpr absl::Duration kKeep = absl::Milliseconds(250);

// The part of NVML's interface that is used, as its documentation gives it. Stable since CUDA 4:
// what changes gets a new name.
using Device = void*;
constexpr int kSuccess = 0;
constexpr unsigned kClockSm = 1;
constexpr unsigned kClockMemory = 2;
constexpr unsigned kTemperatureGpu = 0;
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Nvml {
  absl::Status Load(const SharedLibrary& library) {
    absl::Status status = library.Find("nvmlInit_v2", init);
    status.Update(library.Find("nvmlShutdown", shutdown));
    status.Update(library.Find("nvmlErrorString", error));
    status.Update(library.Find("nvmlDeviceGetHandleByUUID", by_uuid));
    status.Update(library.Find("nvmlDeviceGetMemoryInfo", memory));
    status.Update(library.Find("nvmlDeviceGetClockInfo", clock_mhz));
    status.Update(library.Find("nvmlDeviceGetPowerUsage", power_mw));
    status.Update(library.Find("nvmlDeviceGetEnforcedPowerLimit", power_limit_mw));
    status.Update(library.Find("nvmlDeviceGetTemperature", temperature));
    return status;
  }
  absl::Status ToStatus(int code, const std::string& what) const {
    if (code == kSuccess) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(what, ": ", error(code), " (", code, ")"));
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error)(int) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*memory)(Device, NvmlMemory*) = nullptr;
  int (*clock_mhz)(Device, unsigned, unsigned*) = nullptr;
  int (*power_mw)(Device, unsigned*) = nullptr;
  int (*power_limit_mw)(Device, unsigned*) = nullptr;
  int (*temperature)(Device, unsigned, unsigned*) = nullptr;
};

class NvmlSensors : public Sensors {
 public:
  // `nvml` has been started; this object stops it.
  NvmlSensors(SharedLibrary library, const Nvml& nvml)
      : library_(std::move(library)), nvml_(nvml) {}
  ~NvmlSensors() override { nvml_.shutdown(); }

  absl::Status Find(const std::string& gpu_uuid) {
    return nvml_.ToStatus(nvml_.by_uuid(gpu_uuid.c_str(), &device_),
                          absl::StrCat("NVML, looking for ", gpu_uuid));
  }

  SensorReading Read() const override {
    absl::MutexLock lock(&mu_);
    const absl::Time now = absl::Now();
    if (now - read_at_ < kKeep && now >= read_at_) return reading_;
    read_at_ = now;
    reading_ = Ask();
    return reading_;
  }

 private:
  SensorReading Ask() const {
    SensorReading reading;
    if (NvmlMemory memory = {}; nvml_.memory(device_, &memory) == kSuccess) {
      reading.memory_total_bytes = static_cast<int64_t>(memory.total);
      reading.memory_used_bytes = static_cast<int64_t>(memory.used);
    }
    const auto value = [](int code, unsigned number, double unit) {
      return code == kSuccess ? number * unit : 0.0;
    };
    unsigned number = 0;
    int code = nvml_.clock_mhz(device_, kClockSm, &number);
    reading.clock_hz = value(code, number, 1e6);
    code = nvml_.clock_mhz(device_, kClockMemory, &number);
    reading.memory_clock_hz = value(code, number, 1e6);
    code = nvml_.power_mw(device_, &number);
    reading.power_watts = value(code, number, 1e-3);
    code = nvml_.power_limit_mw(device_, &number);
    reading.power_limit_watts = value(code, number, 1e-3);
    code = nvml_.temperature(device_, kTemperatureGpu, &number);
    reading.temperature_celsius = value(code, number, 1);
    return reading;
  }

  SharedLibrary library_;  // open for as long as nvml_'s functions are called
  const Nvml nvml_;
  Device device_ = nullptr;
  mutable absl::Mutex mu_;
  mutable absl::Time read_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  mutable SensorReading reading_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Sensors>> OpenNvml(const std::string& gpu_uuid,
                                                        const std::string& library) {
  absl::StatusOr<SharedLibrary> loaded = SharedLibrary::Open({library}, {});
  if (!loaded.ok()) return loaded.status();
  Nvml nvml;
  if (absl::Status status = nvml.Load(*loaded); !status.ok()) return status;
  absl::Status status = nvml.ToStatus(nvml.init(), "NVML does not start");
  if (!status.ok()) return status;
  auto sensors = std::make_shared<NvmlSensors>(*std::move(loaded), nvml);
  if (status = sensors->Find(gpu_uuid); !status.ok()) return status;
  return sensors;
}

}  // namespace gemmd::kernels::cuda
