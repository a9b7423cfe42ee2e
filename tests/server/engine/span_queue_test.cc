#include "server/engine/observe/span_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/engine/reason.h"

namespace gemmd::server {
namespace {

using ::testing::SizeIs;

CallSpan CallOf(size_t parts) {
  CallSpan call;
  call.parts.resize(parts);
  return call;
}

TEST(SpanQueueTest, ACallersTraceDecidesForItself) {
  SpanQueue all(true, 1), none(true, 0), off(false, 1);
  EXPECT_TRUE(all.Samples(std::nullopt));
  EXPECT_FALSE(all.Samples(false));
  EXPECT_FALSE(none.Samples(std::nullopt));
  EXPECT_TRUE(none.Samples(true));
  EXPECT_FALSE(off.Samples(true));
}

TEST(SpanQueueTest, AShareIsAboutThatMany) {
  const SpanQueue tenth(true, 0.1);
  int sampled = 0;
  for (int i = 0; i < 10000; ++i) sampled += tenth.Samples(std::nullopt);
  EXPECT_GT(sampled, 700);
  EXPECT_LT(sampled, 1300);
}

TEST(SpanQueueTest, WhatFindsNoRoomIsCountedWithItsParts) {
  SpanQueue queue(true, 1, /*most_calls=*/2);
  for (int i = 0; i < 3; ++i) queue.Offer(CallOf(2));
  EXPECT_EQ(queue.dropped(), 3);
  EXPECT_THAT(queue.Take(), SizeIs(2));
  queue.Offer(CallOf(0));
  EXPECT_THAT(queue.Take(), SizeIs(1));
  EXPECT_EQ(queue.dropped(), 3);
}

TEST(SpanQueueTest, TakeWaitsForACallOrTheEnd) {
  SpanQueue queue(true, 1);
  std::thread caller([&] { queue.Offer(CallOf(1)); });
  EXPECT_THAT(queue.Take(), SizeIs(1));
  caller.join();
  queue.Offer(CallOf(0));
  queue.Stop();
  EXPECT_THAT(queue.Take(), SizeIs(1));  // what was there before the end
  EXPECT_THAT(queue.Take(), SizeIs(0));
  queue.Offer(CallOf(0));
  EXPECT_EQ(queue.dropped(), 1);
}

TEST(SpanQueueTest, AFailureIsTold) {
  CallSpan call;
  EXPECT_EQ(call.code, "OK");
  call.SetStatus(WithReason(absl::NotFoundError("no such plan"), reason::kPlanGone));
  EXPECT_EQ(call.code, "NOT_FOUND");
  EXPECT_EQ(call.reason, reason::kPlanGone);
  EXPECT_EQ(call.message, "no such plan");
}

TEST(SpanQueueTest, IdsAreHexAndDiffer) {
  const std::string id = NewTraceId();
  EXPECT_THAT(id, testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_NE(id, NewTraceId());
  EXPECT_THAT(NewSpanId(), testing::MatchesRegex("[0-9a-f]{16}"));
  EXPECT_NE(NewSpanId(), NewSpanId());
}

}  // namespace
}  // namespace gemmd::server
