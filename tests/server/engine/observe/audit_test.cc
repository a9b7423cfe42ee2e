#include "server/engine/observe/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {
namespace {

using testing::HasSubstr;

class AuditTest : public testing::Test {
 protected:
  FakeClock clock_;
  std::vector<std::string> lines_;
  Log log_{{}, [this](std::string_view line) { lines_.emplace_back(line); }};
  Audit audit_{clock_, log_};
  const AuditEvent event_{.method = "SetLog",
                          .principal = "token:a\nb",
                          .role = "user",
                          .tenant = "red",
                          .peer = "ipv4:10.0.0.7:5",
                          .request = "x-1"};
};

TEST_F(AuditTest, SaysWhoWhatAndWhy) {
  audit_.Refused(event_, "ROLE");
  ASSERT_EQ(lines_.size(), 1);
  for (const char* part : {"audit", "refused", "ROLE", "SetLog", "red", "10.0.0.7"}) {
    EXPECT_THAT(lines_[0], HasSubstr(part));
  }
  EXPECT_EQ(lines_[0].find('\n'), lines_[0].size() - 1) << "a name cannot begin a line";
  audit_.Admin(event_, "OK");
  EXPECT_THAT(lines_[1], HasSubstr("allowed"));
}

TEST_F(AuditTest, OnlyRefusalsAreWarnings) {
  audit_.Admin(event_, "OK");
  EXPECT_THAT(lines_.at(0), HasSubstr(" INFO "));
  audit_.Refused(event_, "ROLE");
  EXPECT_THAT(lines_.at(1), HasSubstr(" WARNING "));
}

TEST_F(AuditTest, HasNoGapWhateverLevelIsSet) {
  log_.Set(LogLevel::kError, 0);
  audit_.Admin(event_, "OK");
  audit_.Refused(event_, "ROLE");
  EXPECT_EQ(lines_.size(), 2);
}

TEST_F(AuditTest, RefusalsCannotFloodTheLogAndNoneIsForgotten) {
  for (int i = 0; i < 1000; ++i) audit_.Refused(event_, "BAD_TOKEN");
  EXPECT_EQ(lines_.size(), Audit::kRefusalsPerSecond);
  clock_.Advance(absl::Seconds(1));
  audit_.Refused(event_, "BAD_TOKEN");
  ASSERT_EQ(lines_.size(), Audit::kRefusalsPerSecond + 1);
  EXPECT_THAT(lines_.back(), HasSubstr("left_out=980"));
}

TEST_F(AuditTest, RefusalsAreToldThoughTheClockIsSetBack) {
  for (int i = 0; i < 1000; ++i) audit_.Refused(event_, "BAD_TOKEN");
  clock_.Advance(-absl::Hours(1));
  audit_.Refused(event_, "BAD_TOKEN");
  EXPECT_EQ(lines_.size(), Audit::kRefusalsPerSecond + 1);
}

TEST_F(AuditTest, AdminsAreNeverLeftOut) {
  for (int i = 0; i < 100; ++i) audit_.Admin(event_, "OK");
  EXPECT_EQ(lines_.size(), 100);
}

}  // namespace
}  // namespace gemmd::server
