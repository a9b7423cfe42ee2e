// Where a session goes that asks for no device: room first, then what waits there.

#include <vector>

#include "gtest/gtest.h"
#include "kernels/fault.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

constexpr int64_t kMemory = int64_t{1} << 30;  // of each fake device

class FindDeviceTest : public StateTest {
 protected:
  FindDeviceTest() : StateTest({.max_buffer_bytes = kMemory}), session_(Open(*red_)) {}

  void Take(int device, int64_t bytes) { AddBuffer(*session_, bytes, device); }
  void Queue(int device, double seconds) {
    auto job = std::make_shared<Job>();
    job->program = std::make_shared<FakeProgram>(seconds);
    job->tenant = red_;
    job->session_key = 1;
    job->done = [](JobResult) {};
    ASSERT_TRUE(state_->devices()[device]->lane().Submit(std::move(job)).ok());
  }
  std::string Chosen() { return (*state_->FindDevice(""))->name(); }

  std::shared_ptr<Session> session_;
};

TEST_F(FindDeviceTest, IdleDevicesAreToldApartByRoom) {
  Take(0, 4096);
  EXPECT_EQ(Chosen(), "fake:1");
  Take(1, 8192);
  EXPECT_EQ(Chosen(), "fake:0");
}

TEST_F(FindDeviceTest, OfThoseWithRoomTheLeastLoadedIsChosen) {
  Take(0, kMemory / 4);
  Queue(1, 0.010);
  EXPECT_EQ(Chosen(), "fake:0");
  Queue(0, 0.020);
  EXPECT_EQ(Chosen(), "fake:1");
  device_.CompleteAll();
  EXPECT_EQ(Chosen(), "fake:0");
}

TEST_F(FindDeviceTest, ADeviceWithLessThanHalfTheRoomIsNotChosenHoweverIdle) {
  Take(0, kMemory / 2 + 256);
  Queue(1, 0.010);
  EXPECT_EQ(Chosen(), "fake:1");
}

TEST_F(FindDeviceTest, TheRoomOfAFencedDeviceDoesNotCount) {
  Take(0, kMemory - 4096);
  EXPECT_EQ(Chosen(), "fake:1");
  other_device_.Fault(kernels::DeviceFault("smoke"));
  state_->NoteFaults();
  EXPECT_EQ(Chosen(), "fake:0");
}

TEST_F(FindDeviceTest, ANameIsTakenAsItIs) {
  Queue(1, 0.010);
  EXPECT_EQ((*state_->FindDevice("fake:1"))->name(), "fake:1");
  EXPECT_EQ(state_->FindDevice("fake:2").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FindDeviceTest, ANameThatIsNoneComesBackEscaped) {
  const std::string message(state_->FindDevice("\x1b]0;title\x07\n\x9b").status().message());
  EXPECT_NE(message.find("\\x1b]0;title\\x07\\n\\x9b"), std::string::npos) << message;
  for (unsigned char byte : message) EXPECT_TRUE(byte >= 0x20 && byte < 0x7f) << message;
}

}  // namespace
}  // namespace gemmd::server
