#include "server/engine/observe/timeline.h"

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"

namespace gemmd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Time kOrigin = absl::FromUnixSeconds(1'800'000'000);

// A second long, `begin` after kOrigin, told apart by its number.
TimelineEvent Event(uint64_t number, absl::Duration begin = absl::Seconds(1)) {
  return {.kind = TimelineEvent::Kind::kDevice,
          .begin = kOrigin + begin,
          .duration = absl::Seconds(1),
          .device = "cpu:0",
          .program = number,
          .bytes = static_cast<int64_t>(number) * 3};
}

std::vector<uint64_t> TakeAll(Recording& recording) {
  std::vector<uint64_t> numbers;
  while (recording.Take(3, [&](const TimelineEvent& event) { numbers.push_back(event.program); })) {
  }
  return numbers;
}

TEST(TimelineTest, RecordsFromBeginToStopInTheOrderOfAdding) {
  Timeline timeline;
  EXPECT_FALSE(timeline.on());
  timeline.Add(Event(1));
  Recording recording = *timeline.Begin(kOrigin);
  EXPECT_TRUE(timeline.on());
  EXPECT_EQ(recording.begin(), kOrigin);
  for (uint64_t i = 2; i < 10; ++i) timeline.Add(Event(i));
  recording.Stop();
  EXPECT_FALSE(timeline.on());
  timeline.Add(Event(10));
  EXPECT_THAT(TakeAll(recording), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(TakeAll(recording), IsEmpty());
  EXPECT_EQ(recording.dropped(), 0);
}

TEST(TimelineTest, GivesAnEventBackAsItWasAdded) {
  Timeline timeline;
  Recording recording = *timeline.Begin(kOrigin);
  TimelineEvent added = {.kind = TimelineEvent::Kind::kOp,
                         .estimated = true,
                         .begin = kOrigin + absl::Nanoseconds(7),
                         .duration = absl::Nanoseconds(5),
                         .device = "cuda:1",
                         .tenant = "red",
                         .name = "cpu_fill",
                         .program = 17,
                         .bytes = 4096};
  added.trace_id.fill('a');
  timeline.Add(added);
  int seen = 0;
  recording.Take(10, [&](const TimelineEvent& event) {
    ++seen;
    EXPECT_EQ(event.kind, added.kind);
    EXPECT_EQ(event.estimated, added.estimated);
    EXPECT_EQ(event.begin, added.begin);
    EXPECT_EQ(event.duration, added.duration);
    EXPECT_EQ(event.device, added.device);
    EXPECT_EQ(event.tenant, added.tenant);
    EXPECT_EQ(event.name, added.name);
    EXPECT_EQ(event.program, added.program);
    EXPECT_EQ(event.bytes, added.bytes);
    EXPECT_EQ(event.trace_id, added.trace_id);
  });
  EXPECT_EQ(seen, 1);
}

TEST(TimelineTest, LeavesOutWhatEndedBeforeItBegan) {
  Timeline timeline;
  Recording recording = *timeline.Begin(kOrigin);
  timeline.Add(Event(1, absl::Seconds(-2)));    // ended a second before
  timeline.Add(Event(2, absl::Seconds(-0.5)));  // lasted into it
  timeline.Add(Event(3, absl::Seconds(-1)));    // ended as it began
  timeline.Add(Event(4, absl::Seconds(-1) - absl::Nanoseconds(1)));
  EXPECT_THAT(TakeAll(recording), ElementsAre(2, 3));
}

TEST(TimelineTest, CountsWhatFoundNoRoomAndGoesOnWhenThereIs) {
  Timeline timeline(/*events_each=*/4);
  Recording recording = *timeline.Begin(kOrigin);
  for (uint64_t i = 1; i <= 10; ++i) timeline.Add(Event(i));
  EXPECT_EQ(recording.dropped(), 6);
  EXPECT_THAT(TakeAll(recording), ElementsAre(1, 2, 3, 4));
  for (uint64_t i = 11; i <= 13; ++i) timeline.Add(Event(i));
  EXPECT_THAT(TakeAll(recording), ElementsAre(11, 12, 13));
  EXPECT_EQ(recording.dropped(), 6);
}

TEST(TimelineTest, EveryRecordingGetsEverythingForItself) {
  Timeline timeline;
  Recording first = *timeline.Begin(kOrigin);
  timeline.Add(Event(1));
  Recording second = *timeline.Begin(kOrigin);
  timeline.Add(Event(2));
  first.End();
  EXPECT_TRUE(timeline.on());
  timeline.Add(Event(3));
  EXPECT_THAT(TakeAll(second), ElementsAre(2, 3));
}

TEST(TimelineTest, RefusesOneTooManyAndTakesTheNextWhenOneEnds) {
  Timeline timeline(/*events_each=*/4);
  std::vector<Recording> recordings;
  for (int i = 0; i < Timeline::kMaxRecordings; ++i) {
    recordings.push_back(*timeline.Begin(kOrigin));
  }
  for (uint64_t i = 1; i <= 9; ++i) timeline.Add(Event(i));
  const absl::Status refused = timeline.Begin(kOrigin).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "TRACE_LIMIT");
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr("limit 4"), HasSubstr("wait")));
  recordings.pop_back();
  Recording next = *timeline.Begin(kOrigin);
  EXPECT_EQ(next.dropped(), 0);
  EXPECT_THAT(TakeAll(next), IsEmpty());
  timeline.Add(Event(20));
  EXPECT_THAT(TakeAll(next), ElementsAre(20));
}

TEST(TimelineTest, ThreadsLoseNothingThatIsNotCounted) {
  constexpr int kThreads = 4;
  constexpr uint64_t kEach = 20'000;
  Timeline timeline(/*events_each=*/256);
  Recording recording = *timeline.Begin(kOrigin);
  std::vector<std::thread> writers;
  std::atomic<int> left = kThreads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    writers.emplace_back([&, t] {
      for (uint64_t i = 1; i <= kEach; ++i) timeline.Add(Event(t * 1'000'000 + i));
      left.fetch_sub(1);
    });
  }
  uint64_t taken = 0;
  std::map<uint64_t, uint64_t> last;  // by writer
  const auto use = [&](const TimelineEvent& event) {
    ++taken;
    EXPECT_EQ(event.bytes, static_cast<int64_t>(event.program) * 3);
    uint64_t& before = last[event.program / 1'000'000];
    EXPECT_GT(event.program % 1'000'000, before);
    before = event.program % 1'000'000;
  };
  while (left.load() > 0) recording.Take(100, use);
  for (std::thread& writer : writers) writer.join();
  while (recording.Take(100, use)) {
  }
  EXPECT_EQ(taken + static_cast<uint64_t>(recording.dropped()), kThreads * kEach);
  EXPECT_GT(taken, 0);
}

TEST(TimelineTest, RecordingsComeAndGoUnderWriters) {
  Timeline timeline(/*events_each=*/64);
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (int t = 0; t < 2; ++t) {
    writers.emplace_back([&] {
      for (uint64_t i = 1; !stop.load(); ++i) {
        if (timeline.on()) timeline.Add(Event(i));
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
  }
  std::vector<std::thread> readers;
  std::atomic<int> whole = 0;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        Recording recording = *timeline.Begin(kOrigin);
        int taken = 0;
        while (taken < 100) {
          recording.Take(10, [&](const TimelineEvent& event) {
            ++taken;
            EXPECT_EQ(event.bytes, static_cast<int64_t>(event.program) * 3);
          });
          std::this_thread::yield();
        }
        whole.fetch_add(1);
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(whole.load(), 150);
  EXPECT_FALSE(timeline.on());
}

}  // namespace
}  // namespace gemmd::server
