#include "server/engine/tuning/tuning_pace.h"

#include "gtest/gtest.h"

namespace gemmd::server {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(TuningPaceTest, TheFirstMeasurementWaitsForNothingButQuiet) {
  TuningPace pace(0.01);
  EXPECT_LE(pace.ToWait(kStart, 0), absl::ZeroDuration());
}

TEST(TuningPaceTest, WhileOthersUseTheDeviceItTakesItsShare) {
  TuningPace pace(0.01);
  pace.Took(kStart, 0.001);
  int64_t others = 0;
  for (absl::Duration since; since < absl::Milliseconds(99); since += absl::Milliseconds(10)) {
    EXPECT_GT(pace.ToWait(kStart + since, ++others), absl::ZeroDuration()) << since;
  }
  EXPECT_LE(pace.ToWait(kStart + absl::Milliseconds(100), ++others), absl::ZeroDuration());
}

TEST(TuningPaceTest, AQuietDeviceGivesMore) {
  TuningPace pace(0.01);
  EXPECT_LE(pace.ToWait(kStart, 7), absl::ZeroDuration());
  const absl::Time later = kStart + absl::Seconds(1);  // nobody came
  pace.Took(later, 0.001);
  EXPECT_EQ(pace.ToWait(later, 7), absl::Milliseconds(5));  // a fifth
  EXPECT_LE(pace.ToWait(later + absl::Milliseconds(5), 7), absl::ZeroDuration());
  // Somebody comes: back to the share.
  EXPECT_EQ(pace.ToWait(later + absl::Milliseconds(4), 8), absl::Milliseconds(96));
}

TEST(TuningPaceTest, AQuietDeviceGivesAtMostHalf) {
  TuningPace pace(0.2);
  pace.ToWait(kStart, 0);
  const absl::Time later = kStart + absl::Seconds(1);
  pace.Took(later, 0.002);
  EXPECT_EQ(pace.ToWait(later, 0), absl::Milliseconds(4));
}

}  // namespace
}  // namespace gemmd::server
