#include "server/memory_return.h"

#include <gtest/gtest.h>

#include <utility>

namespace gemmd::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A process of so many bytes, some of which a trim gives back.
class MemoryReturnTest : public testing::Test {
 protected:
  void Pass(absl::Duration time, const MemoryReturn::Work& work) {
    for (const absl::Time end = now_ + time; now_ < end; now_ += absl::Milliseconds(50)) {
      return_.Watch(work, now_);
    }
  }

  // 200 calls a second, none of which is seen under way.
  void Work(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end;) {
      begun_ += 20;
      Pass(absl::Milliseconds(100), {.begun = begun_});
    }
  }

  int64_t begun_ = 0;
  int64_t resident_ = 20 * kMiB;
  int64_t freed_ = 0;  // of it
  int trims_ = 0;
  absl::Time now_ = absl::UnixEpoch();
  MemoryReturn return_{{.resident_bytes = [this] { return resident_; },
                        .trim =
                            [this] {
                              ++trims_;
                              resident_ -= std::exchange(freed_, 0);
                            }}};
};

TEST_F(MemoryReturnTest, ABurstsMemoryGoesBackOnceItIsQuiet) {
  Pass(absl::Seconds(10), {});
  EXPECT_EQ(trims_, 0);
  resident_ += 500 * kMiB;
  freed_ = 490 * kMiB;
  Pass(absl::Seconds(10), {.begun = 1000, .under_way = 1});
  EXPECT_EQ(trims_, 0);
  Pass(absl::Seconds(1), {.begun = 1000});
  EXPECT_EQ(trims_, 0);
  Pass(absl::Seconds(10), {.begun = 1000});
  EXPECT_EQ(trims_, 2);  // the second found nothing: what is left is in use
  EXPECT_EQ(return_.returned_bytes(), 490 * kMiB);
}

TEST_F(MemoryReturnTest, ABurstBeforeTheFirstLookGoesBackToo) {
  resident_ += 60 * kMiB;
  freed_ = 60 * kMiB;
  Pass(absl::Seconds(5), {.begun = 1000});
  EXPECT_EQ(trims_, 1);
  EXPECT_EQ(resident_, 20 * kMiB);
}

// A connection of the burst may end after the first trim, and its memory shows in no growth.
TEST_F(MemoryReturnTest, WhatIsFreedBehindATrimGoesBackToo) {
  Pass(absl::Seconds(10), {});
  resident_ += 500 * kMiB;
  freed_ = 400 * kMiB;
  Pass(absl::Seconds(5), {.begun = 1000});
  EXPECT_EQ(return_.returned_bytes(), 400 * kMiB);
  freed_ = 90 * kMiB;
  Pass(absl::Seconds(10), {.begun = 1000});
  EXPECT_EQ(return_.returned_bytes(), 490 * kMiB);
}

TEST_F(MemoryReturnTest, WhileThereIsWorkItLooksNowAndThen) {
  Work(absl::Seconds(5));
  resident_ += 500 * kMiB;
  freed_ = 490 * kMiB;
  Work(absl::Seconds(10));
  EXPECT_EQ(trims_, 0);
  Work(absl::Seconds(50));
  EXPECT_EQ(trims_, 1);
  EXPECT_EQ(return_.returned_bytes(), 490 * kMiB);
}

TEST_F(MemoryReturnTest, WhatTheWorkNeedsIsLeftToIt) {
  Work(absl::Seconds(5));
  for (int second = 0; second < 3600; ++second) {
    resident_ = 520 * kMiB;  // again, whatever was given back
    freed_ = 490 * kMiB;
    Work(absl::Seconds(1));
  }
  EXPECT_GE(trims_, 1);
  EXPECT_LE(trims_, 12);
}

TEST_F(MemoryReturnTest, AFewProbesAreNoUse) {
  MemoryReturn::Work work;
  Pass(absl::Seconds(5), work);
  resident_ += 500 * kMiB;
  for (int i = 0; i < 100; ++i) {
    ++work.begun;
    Pass(absl::Milliseconds(100), work);
  }
  EXPECT_EQ(trims_, 1);
}

TEST_F(MemoryReturnTest, WhatShrankByItselfMayGrowAgain) {
  resident_ = 100 * kMiB;
  Pass(absl::Seconds(5), {});
  EXPECT_EQ(trims_, 1);  // which finds nothing
  resident_ = 20 * kMiB;
  Pass(absl::Seconds(5), {});
  EXPECT_EQ(trims_, 1);
  resident_ = 60 * kMiB;
  Pass(absl::Seconds(5), {});
  EXPECT_EQ(trims_, 2);
}

}  // namespace
}  // namespace gemmd::server
