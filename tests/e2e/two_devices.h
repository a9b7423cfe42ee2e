// A daemon with two devices of one kind, and a session with small helpers on both.

#ifndef GEMMD_TESTS_E2E_TWO_DEVICES_H_
#define GEMMD_TESTS_E2E_TWO_DEVICES_H_

#include <glob.h>

#include <string>
#include <vector>

#include "tests/e2e/fixture.h"

namespace gemmd::e2e {

inline bool OnGpus() { return TestDevice().rfind("cuda:", 0) == 0; }

// Why there are no two devices here; empty when there are. GPUs are counted by their nodes: a
// container may see any of the machine's.
inline std::string WhyNotTwo() {
  if (!OnGpus()) return "";
  glob_t found;
  const size_t count = glob("/dev/nvidia[0-9]*", 0, nullptr, &found) == 0 ? found.gl_pathc : 0;
  globfree(&found);
  return count > 1 ? "" : "this machine has " + std::to_string(count) + " GPU, not two";
}

// `near` is where the session is at home.
inline const std::string kNear = OnGpus() ? "cuda:0" : "cpu:0";
inline const std::string kFar = OnGpus() ? "cuda:1" : "cpu:1";

// Of a machine that has one, the first device alone: its tests skip.
inline std::string TwoDevices() {
  const std::string rest =
      OnGpus() ? " memory_bytes: 1073741824 }\n" : " memory_bytes: 1073741824 threads: 1 }\n";
  std::string devices = "devices { name: \"" + kNear + "\"" + rest;
  if (WhyNotTwo().empty()) devices += "devices { name: \"" + kFar + "\"" + rest;
  return devices;
}

class TwoDevicesTest : public testing::Test {
 protected:
  explicit TwoDevicesTest(const std::string& config = "")
      : daemon_({.config = config, .devices = TwoDevices()}),
        client_(ConnectTo(daemon_)),
        session_(Must(client_.OpenSession({.device = kNear}))) {}

  void SetUp() override {
    if (!WhyNotTwo().empty()) GTEST_SKIP() << WhyNotTwo();
  }

  client::Buffer On(const std::string& device, std::vector<int64_t> shape,
                    client::DType dtype = client::DType::kF32) {
    return Must(
        session_.CreateBuffer({.dtype = dtype, .shape = std::move(shape), .device = device}));
  }

  Daemon daemon_;
  client::Client client_;
  client::Session session_;
};

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_TWO_DEVICES_H_
