// Device time is shared between tenants by weight, whatever the size of their programs.

#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>

#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Matmul;
using client::OpList;

// A CPU's device time has the waits for a core in it, and on a busy machine a queue runs dry now
// and then: the shares must be right over one of several spans. Without weights the ratios below
// would be 20 and 1 in each.
constexpr double kTolerance = 0.1;
constexpr int kSpans = 8;

// Keeps a tenant's queue full with programs of `ops` matmuls each until it is destroyed. Shares are
// those of the weights only while nobody's queue runs dry: a window of programs must last longer
// than this thread may wait for a core.
class Load {
 public:
  Load(const Daemon& daemon, const std::string& tenant, int ops)
      : client_(ConnectTo(daemon, tenant)), session_(Must(client_.OpenSession())) {
    x_ = MakeBuffer(session_, {kSide, kSide});
    y_ = MakeBuffer(session_, {kSide, kSide});
    for (int i = 0; i < ops; ++i) {
      program_.Add(Matmul{.a = x_.tensor(), .b = x_.tensor(), .d = y_.tensor()});
    }
    queue_ = Must(session_.OpenQueue({.report = client::ReportLevel::kNone}));
    thread_ = std::thread([this] {
      // Blocks while the window is full: there is always more queued than the device takes.
      while (!stop_.load()) {
        if (!queue_.Submit(program_, [](const auto&) {}).ok()) return;
      }
    });
  }
  ~Load() {
    stop_.store(true);
    thread_.join();
  }

 private:
  static constexpr int64_t kSide = 192;
  client::Client client_;
  client::Session session_;
  client::Buffer x_, y_;
  OpList program_;
  client::Queue queue_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Device seconds of the second for one of the first, between two moments at which both had work
// queued: of the first span in which it is what it should be, or of the last.
double Ratio(const Daemon& daemon, const std::string& first, const std::string& second,
             double should_be) {
  const auto used = [](const Samples& samples, const std::string& tenant) {
    return Sum(samples, "gemmd_tenant_device_seconds_total", "tenant=\"" + tenant + "\"");
  };
  Samples begin, end;
  EXPECT_TRUE(WaitUntil([&] {
    begin = daemon.Metrics();
    return used(begin, first) > 0.2 && used(begin, second) > 0.2;
  }));
  double ratio = 0;
  for (int span = 0; span < kSpans && std::abs(ratio / should_be - 1) > kTolerance; ++span) {
    EXPECT_TRUE(WaitUntil(
        [&] {
          end = daemon.Metrics();
          return used(end, first) + used(end, second) >
                 used(begin, first) + used(begin, second) + 3;
        },
        absl::Minutes(2)));
    const double a = used(end, first) - used(begin, first);
    const double b = used(end, second) - used(begin, second);
    std::printf("device seconds: %s %.3f, %s %.3f\n", first.c_str(), a, second.c_str(), b);
    ratio = b / a;
    begin = end;
  }
  return ratio;
}

TEST(FairnessTest, TwentyTimesLargerProgramsGetTheSameTime) {
  Daemon daemon(
      {.config =
           "tenants { name: \"default\" } tenants { name: \"small\" } tenants { name: \"large\" }",
       .tenants = {"small", "large"},
       .devices = DeviceEntry(/*threads=*/1)});
  Load small(daemon, "small", 4);
  Load large(daemon, "large", 80);
  EXPECT_NEAR(Ratio(daemon, "small", "large", 1), 1, kTolerance);
}

TEST(FairnessTest, WeightsAreKept) {
  Daemon daemon({.config = "tenants { name: \"default\" } tenants { name: \"one\" } tenants { "
                           "name: \"three\" weight: 3 }",
                 .tenants = {"one", "three"},
                 .devices = DeviceEntry(/*threads=*/1)});
  Load one(daemon, "one", 16);
  Load three(daemon, "three", 16);
  EXPECT_NEAR(Ratio(daemon, "one", "three", 3), 3, 3 * kTolerance);
}

}  // namespace
}  // namespace gemmd::e2e
