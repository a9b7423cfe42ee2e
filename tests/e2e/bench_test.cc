// gemmd_bench against a real daemon: that every figure is measured, never what it is.

#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

DaemonOptions TwoTenants() {
  return {.config =
              "tenants { name: \"default\" } tenants { name: \"small\" } "
              "tenants { name: \"large\" }",
          .tenants = {"small", "large"}};
}

TEST(BenchSuiteTest, QuickSuiteMeasuresEveryFigureAndLeavesNothing) {
  Daemon daemon(TwoTenants());
  const std::string out = daemon.dir() + "/serving.json";
  const Finished done = RunToEnd({GEMMD_BENCH_PATH, "serving", "--quick", "--server",
                                  daemon.target(), "--small", daemon.target("small"), "--large",
                                  daemon.target("large"), "--python", "no-python", "--out", out},
                                 absl::Minutes(4));
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("wanted"), HasSubstr("queue_device_busy")));
  const json document = json::parse(ReadFile(out));
  EXPECT_EQ(document["device"]["name"], TestDevice());
  EXPECT_EQ(document["quick"], true);
  int measured = 0;
  for (const auto& [key, figure] : document["figures"].items()) {
    if (key == "two_devices_over_one" || key == "device_beside_another" || key == "device_copy") {
      EXPECT_THAT(figure["missing"].get<std::string>(), HasSubstr("no second device"));
      continue;
    }
    if (key == "python_workers_over_one_client") {  // client/python/tests/e2e runs them
      EXPECT_THAT(figure["missing"].get<std::string>(), HasSubstr("no-python"));
      continue;
    }
    EXPECT_TRUE(figure["seen"].is_number()) << key << ": " << figure["missing"];
    ++measured;
  }
  EXPECT_EQ(measured, 19);
  EXPECT_EQ(document["figures"]["weight_copies"]["verdict"], "ok");
  EXPECT_GT(document["figures"]["plan_over_kernels"]["seen"], 0);
  EXPECT_EQ(document["figures"]["plan_queued_over_kernels"]["detail"]["kernel_us"].size(), 8u);
  EXPECT_GT(document["figures"]["plan_less_echo_over_kernels"]["detail"]["echo_p50_us"], 0);
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon) == Holdings(); }))
      << testing::PrintToString(HoldingsOf(daemon));
}

TEST(BenchLoadTest, EveryModeMeasuresAndLeavesNothing) {
  Daemon daemon;
  const std::vector<std::string> matmul = {"--m", "64", "--n", "64", "--k", "512"};  // A: 128 KiB
  for (const absl::string_view mode :
       {"execute", "execute --rate 500", "inline", "inline --route grpc", "queue", "plan",
        "plan-inline", "plan-inline --route grpc"}) {
    std::vector<std::string> command = {GEMMD_BENCH_PATH, "load",     "--requests",    "20",
                                        "--json",         "--server", daemon.target(), "--mode"};
    for (const absl::string_view word : absl::StrSplit(mode, ' ')) command.emplace_back(word);
    command.insert(command.end(), matmul.begin(), matmul.end());
    const Finished done = RunToEnd(command);
    ASSERT_EQ(done.status, 0) << mode << ": " << done.err;
    const json report = json::parse(done.out);
    EXPECT_EQ(report["requests"], 20) << mode;
    EXPECT_EQ(report["errors"], 0) << mode;
    EXPECT_GT(report["echo_latency_us"]["p50"], 0) << mode;
  }
  for (const char* mode : {"upload", "download"}) {
    const Finished moved =
        RunToEnd({GEMMD_BENCH_PATH, "load", "--requests", "20", "--json", "--server",
                  daemon.target(), "--mode", mode, "--bytes", "100000"});
    ASSERT_EQ(moved.status, 0) << moved.err;
    const json report = json::parse(moved.out);
    EXPECT_EQ(report["mode"], mode);
    EXPECT_GT(report["gb_per_second"], 0);
  }
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon) == Holdings(); }));
}

TEST(BenchLoadTest, EndsWhateverWasAskedFor) {
  Daemon daemon;
  const auto run = [&](std::vector<std::string> flags) {
    std::vector<std::string> command = {GEMMD_BENCH_PATH, "load", "--server", daemon.target()};
    command.insert(command.end(), flags.begin(), flags.end());
    return RunToEnd(command);
  };
  const Finished done = run({"--rate", "1e8", "--duration", "200ms", "--grace", "4s", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  const json document = json::parse(done.out);
  EXPECT_EQ(document["due"], 20'000'000);
  EXPECT_EQ(document["unsent"].get<int64_t>() + document["requests"].get<int64_t>(), 20'000'000);
  EXPECT_GT(document["requests"], 0);
  const Finished text = run({"--rate", "1e8", "--duration", "200ms", "--grace", "4s"});
  EXPECT_THAT(text.out, HasSubstr("of 20000000 requests that were due were not sent"));
}

TEST(BenchSuiteTest, TenantsNotGivenAreAMissingFigureNotAFailure) {
  Daemon daemon;
  const Finished done =
      RunToEnd({GEMMD_BENCH_PATH, "serving", "--quick", "--json", "--server", daemon.target()},
               absl::Minutes(4));
  ASSERT_EQ(done.status, 0) << done.err;
  const json shares = json::parse(done.out)["figures"]["tenant_share_difference"];
  EXPECT_TRUE(shares["seen"].is_null());
  EXPECT_THAT(shares["missing"].get<std::string>(), HasSubstr("--small"));
}

TEST(BenchSuiteTest, SoakRunsItsOpsAndLeavesNothing) {
  Daemon daemon;
  const Finished done =
      RunToEnd({GEMMD_BENCH_PATH, "soak", "--ops", "2000", "--json", "--server", daemon.target()},
               absl::Minutes(4));
  // 1: it has grown, as a process so young may.
  ASSERT_TRUE(done.status == 0 || done.status == 1) << done.err;
  const json figures = json::parse(done.out)["figures"];
  EXPECT_EQ(figures["soak_buffer_bytes_left"]["seen"], 0);
  EXPECT_EQ(figures["soak_buffer_bytes_left"]["detail"]["ops"], 2000);
  EXPECT_GT(figures["soak_resident_growth"]["seen"], 0);
  EXPECT_EQ(figures["soak_descriptor_growth"]["detail"]["looks"].size(), 5u);
  EXPECT_GT(daemon.Metric("gemmd_ops_total"), 1500);  // transfers are none of its ops
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon) == Holdings(); }))
      << testing::PrintToString(HoldingsOf(daemon));
}

}  // namespace
}  // namespace gemmd::e2e
