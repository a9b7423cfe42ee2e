// A library with NVML's entry points and one GPU, "GPU-fake", whose power limit it does not tell.

#include <cstring>

namespace {

struct Memory {
  unsigned long long total, free, used;
};
int device;
int started = 0;
constexpr int kSuccess = 0, kUninitialized = 1, kNotSupported = 3, kNotFound = 6;

int Tell(unsigned* value, unsigned number) {
  if (started <= 0) return kUninitialized;
  *value = number;
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return ++started, kSuccess; }
int nvmlShutdown() { return --started, kSuccess; }
const char* nvmlErrorString(int code) { return code == kNotFound ? "Not Found" : "Error"; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (std::strcmp(uuid, "GPU-fake") != 0) return kNotFound;
  *handle = &device;
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  if (handle != &device || started <= 0) return kUninitialized;
  *memory = {150ull << 30, 110ull << 30, 40ull << 30};
  return kSuccess;
}
int nvmlDeviceGetClockInfo(void*, unsigned kind, unsigned* mhz) {
  return Tell(mhz, kind == 1 ? 1980 : kind == 2 ? 3201 : 0);
}
int nvmlDeviceGetPowerUsage(void*, unsigned* mw) { return Tell(mw, 312500); }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned*) { return kNotSupported; }
int nvmlDeviceGetTemperature(void*, unsigned kind, unsigned* celsius) {
  return Tell(celsius, kind == 0 ? 41 : 0);
}

}  // extern "C"
