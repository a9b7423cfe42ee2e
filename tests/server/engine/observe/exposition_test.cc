#include "server/engine/observe/exposition.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/observe/metrics.h"

namespace gemmd::server {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using ::testing::HasSubstr;
using ::testing::Not;

// One gauge that says how often it was read.
Source Readings(std::atomic<int>& reads) {
  return [&reads](Families& families) {
    families.Gauge("readings", "How often.").Add({{"who", "test"}}, ++reads);
  };
}

TEST(ExpositionTest, SourcesAreReadAtEachScrapeBesideWhatIsKept) {
  std::atomic<int> reads = 0;
  Metrics metrics("1");
  const auto registration = metrics.Register(Readings(reads));
  EXPECT_EQ(reads, 0);
  EXPECT_THAT(metrics.Text(), HasSubstr("# HELP readings How often.\n# TYPE readings gauge\n"
                                        "readings{who=\"test\"} 1\n"));
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("\nreadings{who=\"test\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("\ngemmd_sessions 0\n"));
}

TEST(ExpositionTest, ASourceThatIsGoneIsNotRead) {
  std::atomic<int> reads = 0;
  Metrics metrics("1");
  auto registration = metrics.Register(Readings(reads));
  registration.reset();
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("readings")));
  EXPECT_EQ(reads, 0);
}

TEST(ExpositionTest, ARegistrationMayOutliveTheMetrics) {
  std::atomic<int> reads = 0;
  auto metrics = std::make_unique<Metrics>("1");
  auto registration = metrics->Register(Readings(reads));
  metrics.reset();
  registration.reset();
  EXPECT_EQ(reads, 0);
}

TEST(ExpositionTest, AFamilyWithoutSeriesIsLeftOut) {
  Families read;
  read.Gauge("empty", "Nothing.");
  std::vector<MetricFamily> families;
  std::move(read).MoveTo(families);
  EXPECT_TRUE(families.empty());
}

TEST(ExpositionTest, CountersAreWrittenAsCounters) {
  Families read;
  read.Counter("seconds_total", "Time.").Add({}, 2.5);
  std::vector<MetricFamily> families;
  std::move(read).MoveTo(families);
  ASSERT_EQ(families.size(), 1u);
  EXPECT_EQ(families[0].type, MetricType::Counter);
  EXPECT_EQ(families[0].metric[0].counter.value, 2.5);
}

// What a source reads may go as soon as its registration has: the sanitizers watch here.
TEST(ExpositionTest, RemovalWaitsForScrapesUnderWay) {
  Metrics metrics("1");
  std::atomic<bool> stop = false;
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 2; ++i) {
    scrapers.emplace_back([&] {
      while (!stop) metrics.Text();
    });
  }
  int read = 0;
  for (int i = 0; i < 200; ++i) {
    auto reads = std::make_unique<std::atomic<int>>(0);
    auto registration = metrics.Register(Readings(*reads));
    while (i % 10 == 0 && *reads == 0) std::this_thread::yield();
    registration.reset();
    read += *reads > 0;
  }
  stop = true;
  for (std::thread& scraper : scrapers) scraper.join();
  EXPECT_GE(read, 20);
}

}  // namespace
}  // namespace gemmd::server
