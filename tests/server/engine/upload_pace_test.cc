#include "server/engine/sessions/upload_pace.h"

#include <gtest/gtest.h>

namespace gemmd::server {
namespace {

constexpr int64_t kRate = 1'000'000;
const absl::Time kPaceStart = absl::FromUnixSeconds(1'000'000);

TEST(UploadPaceTest, WithoutARateNobodyWaits) {
  UploadPace pace;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pace.Take(1 << 30, 0, kPaceStart), absl::ZeroDuration());
}

TEST(UploadPaceTest, ABurstIsFreeAndThenTheRateHolds) {
  UploadPace pace;
  EXPECT_EQ(pace.Take(kRate / 10, kRate, kPaceStart), absl::ZeroDuration());
  EXPECT_EQ(pace.Take(kRate, kRate, kPaceStart), absl::Seconds(1));
  // Another stream of the tenant waits behind it.
  EXPECT_EQ(pace.Take(kRate, kRate, kPaceStart), absl::Seconds(2));
  EXPECT_EQ(pace.Take(kRate, kRate, kPaceStart + absl::Seconds(2)), absl::Seconds(1));
}

TEST(UploadPaceTest, AClockThatIsSetBackMakesNobodyWait) {
  UploadPace pace;
  pace.Take(kRate, kRate, kPaceStart);
  const absl::Duration wait = pace.Take(kRate, kRate, kPaceStart - absl::Hours(1));
  EXPECT_EQ(wait, absl::Seconds(2) - UploadPace::kBurst);
  EXPECT_EQ(pace.Take(kRate, kRate, kPaceStart - absl::Hours(1) + wait), absl::Seconds(1));
}

TEST(UploadPaceTest, AnIdleSpellSavesNoMoreThanABurst) {
  UploadPace pace;
  pace.Take(kRate, kRate, kPaceStart);
  EXPECT_EQ(pace.Take(kRate, kRate, kPaceStart + absl::Hours(1)),
            absl::Seconds(1) - UploadPace::kBurst);
}

}  // namespace
}  // namespace gemmd::server
