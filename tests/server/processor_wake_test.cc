#include "server/processor_wake.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ProcessorWakeTest : public ::testing::Test {
 protected:
  ProcessorWakeTest() : file_(::testing::TempDir() + "/wake-" + std::to_string(getpid())) {
    std::ofstream(file_, std::ios::trunc).flush();
  }
  ~ProcessorWakeTest() override { unlink(file_.c_str()); }

  // What the kernel was told.
  std::string Told() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const std::string file_;
  const absl::Time start_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(ProcessorWakeTest, HoldsFromTheFirstProgramToASecondBehindTheLast) {
  auto wake = *ProcessorWake::Create(absl::Microseconds(20), file_);
  wake->Watch(0, 0, start_);
  EXPECT_FALSE(wake->held());
  EXPECT_EQ(Told(), "");
  wake->Watch(0, 1, start_);
  EXPECT_TRUE(wake->held());
  const int32_t most = 20;
  ASSERT_EQ(Told().size(), sizeof(most));
  EXPECT_EQ(std::memcmp(Told().data(), &most, sizeof(most)), 0);
  wake->Watch(0, 1, start_ + absl::Minutes(1));  // a long one
  wake->Watch(1, 0, start_ + absl::Minutes(2));
  wake->Watch(1, 0, start_ + absl::Minutes(2) + absl::Milliseconds(999));
  EXPECT_TRUE(wake->held());
  wake->Watch(1, 0, start_ + absl::Minutes(2) + absl::Seconds(1));
  EXPECT_FALSE(wake->held());
}

TEST_F(ProcessorWakeTest, ProgramsThatCameAndWentBetweenTwoLooksCount) {
  auto wake = *ProcessorWake::Create(absl::ZeroDuration(), file_);
  wake->Watch(0, 0, start_);
  wake->Watch(7, 0, start_ + absl::Minutes(1));
  EXPECT_TRUE(wake->held());
}

TEST_F(ProcessorWakeTest, AFileThatCannotBeWrittenIsToldAtOnce) {
  const auto wake = ProcessorWake::Create(absl::ZeroDuration(), file_ + "/none");
  EXPECT_EQ(wake.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wake.status().message()),
              AllOf(HasSubstr("scheduler.processor_wake_us"), HasSubstr(file_ + "/none"),
                    HasSubstr("leave the field out")));
}

}  // namespace
}  // namespace gemmd::server
