// Device time is shared between tenants by weight, whatever the size of their programs.

#include <atomic>
#include <thread>

#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Matmul;
using client::OpList;

// A CPU's device time has the waits for a core in it; without weights the ratios below would be 20
// and 1.
constexpr double kTolerance = 0.1;

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

// Device seconds of (first, second) between two moments at which both had work queued.
std::pair<double, double> Shares(const Daemon& daemon, const std::string& first,
                                 const std::string& second) {
  const auto used = [](const Samples& samples, const std::string& tenant) {
    return Sum(samples, "gemmd_tenant_device_seconds_total", "tenant=\"" + tenant + "\"");
  };
  Samples begin, end;
  EXPECT_TRUE(WaitUntil([&] {
    begin = daemon.Metrics();
    return used(begin, first) > 0.2 && used(begin, second) > 0.2;
  }));
  EXPECT_TRUE(WaitUntil(
      [&] {
        end = daemon.Metrics();
        return used(end, first) + used(end, second) > used(begin, first) + used(begin, second) + 3;
      },
      absl::Seconds(60)));
  return {used(end, first) - used(begin, first), used(end, second) - used(begin, second)};
}

TEST(FairnessTest, TwentyTimesLargerProgramsGetTheSameTime) {
  Daemon daemon(
      {.config =
           "tenants { name: \"default\" } tenants { name: \"small\" } tenants { name: \"large\" }",
       .tenants = {"small", "large"},
       .devices = DeviceEntry(/*threads=*/1)});
  Load small(daemon, "small", 4);
  Load large(daemon, "large", 80);
  const auto [small_seconds, large_seconds] = Shares(daemon, "small", "large");
  EXPECT_NEAR(small_seconds / large_seconds, 1.0, kTolerance);
  std::printf("device seconds: small %.3f, large %.3f\n", small_seconds, large_seconds);
}

TEST(FairnessTest, WeightsAreKept) {
  Daemon daemon({.config = "tenants { name: \"default\" } tenants { name: \"one\" } tenants { "
                           "name: \"three\" weight: 3 }",
                 .tenants = {"one", "three"},
                 .devices = DeviceEntry(/*threads=*/1)});
  Load one(daemon, "one", 16);
  Load three(daemon, "three", 16);
  const auto [one_seconds, three_seconds] = Shares(daemon, "one", "three");
  EXPECT_NEAR(three_seconds / one_seconds, 3.0, 3.0 * kTolerance);
  std::printf("device seconds: weight 1 %.3f, weight 3 %.3f\n", one_seconds, three_seconds);
}

}  // namespace
}  // namespace gemmd::e2e
