// A daemon with two devices of one kind or more, and a session with small helpers on them.

#pragma once

#include <glob.h>

#include <string>
#include <vector>

#include "tests/e2e/fixture.h"

namespace gemmd::e2e {

inline bool OnGpus() { return TestDevice().rfind("cuda:", 0) == 0; }

// Why there are not so many devices here; empty when there are. GPUs are counted by their nodes: a
// container may see any of the machine's.
inline std::string WhyNot(size_t devices) {
  if (!OnGpus()) return "";
  glob_t found;
  const size_t count = glob("/dev/nvidia[0-9]*", 0, nullptr, &found) == 0 ? found.gl_pathc : 0;
  globfree(&found);
  if (count >= devices) return "";
  return "this machine has " + std::to_string(count) + " GPUs, not " + std::to_string(devices);
}
inline std::string WhyNotTwo() { return WhyNot(2); }

inline std::string DeviceName(int number) {
  return (OnGpus() ? "cuda:" : "cpu:") + std::to_string(number);
}

// `near` is where the session is at home.
inline const std::string kNear = DeviceName(0);
inline const std::string kFar = DeviceName(1);

// Of a machine that has fewer, the first device alone: its tests skip.
inline std::string DeviceEntries(int count) {
  const std::string rest =
      OnGpus() ? " memory_bytes: 1073741824 }\n" : " memory_bytes: 1073741824 threads: 1 }\n";
  std::string devices;
  for (int i = 0; i < (WhyNot(count).empty() ? count : 1); ++i) {
    devices += "devices { name: \"" + DeviceName(i) + "\"" + rest;
  }
  return devices;
}

class TwoDevicesTest : public testing::Test {
 protected:
  explicit TwoDevicesTest(const std::string& config = "", int devices = 2)
      : devices_(devices),
        daemon_({.config = config, .devices = DeviceEntries(devices)}),
        client_(ConnectTo(daemon_)),
        session_(Must(client_.OpenSession({.device = kNear}))) {}

  void SetUp() override {
    if (!WhyNot(devices_).empty()) GTEST_SKIP() << WhyNot(devices_);
  }

  client::Buffer On(const std::string& device, std::vector<int64_t> shape,
                    client::DType dtype = client::DType::kF32) {
    return Must(
        session_.CreateBuffer({.dtype = dtype, .shape = std::move(shape), .device = device}));
  }

  const int devices_;
  Daemon daemon_;
  client::Client client_;
  client::Session session_;
};

}  // namespace gemmd::e2e
