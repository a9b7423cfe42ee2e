// A device that faults: its work fails with a reason of its own, the others serve on.

#include "kernels/fault.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class FaultTest : public StateTest {
 protected:
  void Submit(int device) {
    auto job = std::make_shared<Job>();
    job->program = std::make_shared<FakeProgram>(0.001);
    job->tenant = red_;
    job->session_key = 1;
    job->done = [this](JobResult result) {
      answers_.push_back(absl::StrCat(absl::StatusCodeToString(result.status.code()), " ",
                                      ReasonOf(result.status)));
    };
    ASSERT_TRUE(state_->devices()[device]->lane().Submit(std::move(job)).ok());
  }

  std::vector<std::string> answers_;
};

TEST_F(FaultTest, HealthyDevicesAreNotNoted) {
  EXPECT_FALSE(state_->NoteFaults());
  EXPECT_EQ(state_->serving_devices(), 2);
}

TEST_F(FaultTest, IsNotedOnceAndShown) {
  device_.Fault(kernels::DeviceFault("smoke"));
  EXPECT_TRUE(state_->NoteFaults());
  EXPECT_FALSE(state_->NoteFaults());
  EXPECT_EQ(state_->serving_devices(), 1);
  EXPECT_TRUE(state_->devices()[0]->fenced());
  EXPECT_FALSE(state_->devices()[1]->fenced());
  const std::string metrics = metrics_.Text();
  EXPECT_THAT(metrics, HasSubstr("gemmd_device_state{device=\"fake:0\",state=\"fenced\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("gemmd_device_state{device=\"fake:0\",state=\"serving\"} 0"));
  EXPECT_THAT(metrics, HasSubstr("gemmd_device_state{device=\"fake:1\",state=\"serving\"} 1"));
  other_device_.Fault(kernels::DeviceFault("fire"));
  EXPECT_TRUE(state_->NoteFaults());
  EXPECT_EQ(state_->serving_devices(), 0);
}

TEST_F(FaultTest, NewSessionsGoToTheDevicesThatServe) {
  auto session = Open(*red_);
  AddBuffer(*session, 1024, /*device=*/1);  // the other one has more room
  EXPECT_EQ(*state_->FindDevice(""), state_->devices()[0].get());
  device_.Fault(kernels::DeviceFault("smoke"));
  state_->NoteFaults();
  EXPECT_EQ(*state_->FindDevice(""), state_->devices()[1].get());
  EXPECT_EQ(*state_->FindDevice("fake:0"), state_->devices()[0].get());
}

TEST_F(FaultTest, QueuedWorkFailsWithItsReason) {
  for (int i = 0; i < 10; ++i) Submit(0);
  device_.Fault(kernels::DeviceFault("smoke"));
  device_.CompleteAll();
  EXPECT_EQ(answers_.size(), 10u);
  EXPECT_THAT(answers_, Each("UNAVAILABLE DEVICE_FENCED"));
}

TEST_F(FaultTest, TheOthersServeOn) {
  device_.Fault(kernels::DeviceFault("smoke"));
  state_->NoteFaults();
  Submit(1);
  other_device_.CompleteAll();
  EXPECT_THAT(answers_, ::testing::ElementsAre("OK "));
}

TEST_F(FaultTest, AnotherUnavailableIsNoFault) {
  EXPECT_EQ(ReasonOf(absl::UnavailableError("busy")), "UNAVAILABLE");
  EXPECT_EQ(ReasonOf(kernels::DeviceFault("smoke")), "DEVICE_FENCED");
}

TEST_F(FaultTest, QuarantinedKernelsAreCounted) {
  const std::string metrics = metrics_.Text();
  EXPECT_THAT(metrics,
              HasSubstr("gemmd_kernel_quarantined{device=\"fake:0\",kernel=\"fake_f8\"} 1"));
  EXPECT_THAT(metrics,
              Not(HasSubstr("gemmd_kernel_quarantined{device=\"fake:0\",kernel=\"fake_f32\"")));
}

}  // namespace
}  // namespace gemmd::server
