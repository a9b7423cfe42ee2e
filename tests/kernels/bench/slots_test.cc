#include "kernels/bench/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::kernels::bench {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

KernelRecord Mark(uint64_t at_ns) { return {at_ns, at_ns + 1, true}; }
KernelRecord Kernel(uint64_t start_ns, uint64_t end_ns) { return {start_ns, end_ns, false}; }
auto Near(double seconds) { return DoubleNear(seconds, 1e-15); }

TEST(SlotsTest, CallsTakeTurns) {
  const auto seconds = SecondsOfCalls({Mark(0), Kernel(10, 15), Mark(20), Kernel(30, 37), Mark(40),
                                       Kernel(50, 56), Mark(60), Kernel(70, 78)},
                                      2, 2);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_THAT((*seconds)[0], ElementsAre(Near(5e-9), Near(6e-9)));
  EXPECT_THAT((*seconds)[1], ElementsAre(Near(7e-9), Near(8e-9)));
}

TEST(SlotsTest, ACallOfSeveralKernelsLastsFromTheFirstToTheLast) {
  const auto seconds =
      SecondsOfCalls({Mark(0), Kernel(10, 15), Kernel(18, 30), Kernel(19, 25)}, 1, 1);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_THAT((*seconds)[0], ElementsAre(Near(20e-9)));
}

TEST(SlotsTest, RecordsMayComeInAnyOrder) {
  const auto seconds = SecondsOfCalls({Kernel(30, 37), Mark(20), Kernel(10, 15), Mark(0)}, 2, 1);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_THAT((*seconds)[0], ElementsAre(Near(5e-9)));
  EXPECT_THAT((*seconds)[1], ElementsAre(Near(7e-9)));
}

TEST(SlotsTest, WhatRanBeforeTheFirstMarkIsNobodys) {
  const auto seconds = SecondsOfCalls({Kernel(1, 9), Mark(10), Kernel(20, 25)}, 1, 1);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_THAT((*seconds)[0], ElementsAre(Near(5e-9)));
}

TEST(SlotsTest, AMissingCallOrKernelIsAnError) {
  EXPECT_THAT(std::string(SecondsOfCalls({Mark(0), Kernel(10, 15)}, 2, 1).status().message()),
              HasSubstr("1 of 2 timed calls"));
  EXPECT_THAT(
      std::string(SecondsOfCalls({Mark(0), Kernel(10, 15), Mark(20)}, 2, 1).status().message()),
      HasSubstr("no kernel for call 1"));
}

}  // namespace
}  // namespace gemmd::kernels::bench
