// `gemmctl trace` against a real daemon: a file that a viewer reads, and what it says on the way.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Fill;
using client::OpList;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

int64_t Ns(const json& micros) { return std::llround(micros.get<double>() * 1000); }

class GemmctlTraceTest : public testing::Test {
 protected:
  GemmctlTraceTest()
      : daemon_({.config = "tenants { name: \"default\" } tenants { name: \"red\" }",
                 .tenants = {"red"}}) {}

  // Programs of both tenants, one after another, until `done`.
  void Work(const std::atomic<bool>& done) {
    client::Client clients[] = {ConnectTo(daemon_), ConnectTo(daemon_, "red")};
    client::Session sessions[] = {Must(clients[0].OpenSession()), Must(clients[1].OpenSession())};
    client::Buffer buffers[] = {MakeBuffer(sessions[0], {64, 64}),
                                MakeBuffer(sessions[1], {64, 64})};
    while (!done.load()) {
      for (int i : {0, 1}) Must(sessions[i].Execute(OpList().Add(Fill{buffers[i].tensor(), 1})));
    }
  }
  // gemmctl with both tenants at work meanwhile.
  Finished Trace(std::vector<std::string> args) {
    args.insert(args.begin(), {GEMMCTL_PATH, "trace", "--server", daemon_.target()});
    std::atomic<bool> done = false;
    std::thread load([&] { Work(done); });
    Finished finished = RunToEnd(args);
    done = true;
    load.join();
    return finished;
  }

  // The same for longer and longer, until what was traced is `enough`: a busy machine may run no
  // program within any one span.
  Finished TraceUntil(const std::vector<std::string>& args,
                      const std::function<bool(const Finished&)>& enough) {
    const absl::Time deadline = absl::Now() + absl::Minutes(2);
    for (absl::Duration span = absl::Milliseconds(250);; span *= 2) {
      std::vector<std::string> timed = args;
      timed.insert(timed.end(), {"--for", absl::FormatDuration(span)});
      Finished finished = Trace(timed);
      if (finished.status != 0 || enough(finished) || absl::Now() > deadline) return finished;
    }
  }

  Daemon daemon_;
};

// The rows that a trace of both tenants' programs has.
std::set<std::string> WantedRows() {
  return {TestDevice() + "/device",    TestDevice() + "/launch", TestDevice() + "/queue default",
          TestDevice() + "/queue red", "tenant default/calls",   "tenant red/calls"};
}

// The rows' names, "PROCESS/ROW", by number.
std::map<int64_t, std::string> RowsOf(const json& document) {
  std::map<int64_t, std::string> processes, rows;
  for (const json& event : document["traceEvents"]) {
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
  }
  for (const json& event : document["traceEvents"]) {
    if (event["name"] != "thread_name") continue;
    rows[event["tid"]] = processes[event["pid"]] + "/" + event["args"]["name"].get<std::string>();
  }
  return rows;
}

std::set<std::string> NamesOf(const std::map<int64_t, std::string>& rows) {
  std::set<std::string> names;
  for (const auto& [tid, name] : rows) names.insert(name);
  return names;
}

TEST_F(GemmctlTraceTest, WritesAFileThatAViewerReads) {
  const std::string path = daemon_.dir() + "/trace.json";
  const Finished done = TraceUntil({"-o", path}, [&](const Finished&) {
    const json document = json::parse(ReadFile(path));
    const std::set<std::string> names = NamesOf(RowsOf(document)), wanted = WantedRows();
    return document["otherData"]["dropped"] == 0 &&
           document["otherData"]["devices"][0]["programs"] > 20 &&
           std::includes(names.begin(), names.end(), wanted.begin(), wanted.end());
  });
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("wrote " + path), HasSubstr("0 dropped"),
                              HasSubstr(TestDevice()), HasSubstr("busy")));
  const json document = json::parse(ReadFile(path));
  EXPECT_EQ(document["displayTimeUnit"], "ns");
  EXPECT_EQ(document["otherData"]["dropped"], 0);

  std::map<int64_t, std::string> rows = RowsOf(document);
  for (const std::string& row : WantedRows()) EXPECT_TRUE(NamesOf(rows).contains(row)) << row;

  // By program: where each of its slices begins. A flow needs them in this order.
  std::map<std::string, std::map<std::string, int64_t>> programs;
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> slices;
  int64_t device_ns = 0;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const int64_t begin = Ns(event["ts"]), end = begin + Ns(event["dur"]);
    slices[event["tid"]].emplace_back(begin, -end);
    if (event["cat"] == "device") device_ns += end - begin;
    if (event.contains("bind_id")) programs[event["bind_id"]][event["cat"]] = begin;
  }
  EXPECT_GT(programs.size(), 10u);
  int whole = 0;
  for (const auto& [number, begins] : programs) {
    if (begins.size() < 3) continue;  // at the trace's edges
    ++whole;
    EXPECT_LE(begins.at("queue"), begins.at("launch"));
    EXPECT_LE(begins.at("queue"), begins.at("device"));
  }
  EXPECT_GE(whole, static_cast<int>(programs.size()) - 4);
  for (auto& [tid, in_row] : slices) {
    std::sort(in_row.begin(), in_row.end());
    std::vector<int64_t> open;
    for (const auto& [begin, minus_end] : in_row) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      EXPECT_TRUE(open.empty() || -minus_end <= open.back()) << rows[tid] << " at " << begin;
      open.push_back(-minus_end);
    }
  }
  const double busy = document["otherData"]["devices"][0]["busy"];
  const double seconds = document["otherData"]["seconds"];
  EXPECT_NEAR(busy * seconds, static_cast<double>(device_ns) * 1e-9, 0.02 * busy * seconds);
}

TEST_F(GemmctlTraceTest, ToStdoutTheSummaryGoesToStderr) {
  const Finished done = Trace({"-o", "-", "--for", "100ms"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_GT(json::parse(done.out)["traceEvents"].size(), 0u);
  EXPECT_THAT(done.err, AllOf(HasSubstr("events"), HasSubstr("busy")));
}

TEST_F(GemmctlTraceTest, JsonIsTheSummary) {
  const std::string path = daemon_.dir() + "/trace.json";
  const Finished done = TraceUntil({"-o", path, "--json"}, [](const Finished& traced) {
    return json::parse(traced.out)["devices"][0]["programs"] > 0;
  });
  ASSERT_EQ(done.status, 0) << done.err;
  const json summary = json::parse(done.out);
  EXPECT_EQ(summary["file"], path);
  EXPECT_GE(summary["seconds"], 0.25);
  EXPECT_EQ(summary["devices"][0]["name"], TestDevice());
  EXPECT_GT(summary["devices"][0]["programs"], 0);
  EXPECT_GT(summary["events"], summary["calls"]);
}

TEST_F(GemmctlTraceTest, ExitCodesAreThoseOfTheOtherCommands) {
  const std::string path = daemon_.dir() + "/trace.json";
  const auto run = [&](const std::string& server, std::vector<std::string> args) {
    args.insert(args.begin(), {GEMMCTL_PATH, "trace", "--server", server});
    return RunToEnd(args);
  };
  EXPECT_EQ(run(daemon_.target(), {"-o", "-", "--json"}).status, 2);
  EXPECT_EQ(run(daemon_.target(), {"-o", daemon_.dir() + "/none/t.json"}).status, 3);
  EXPECT_EQ(run("unix:" + daemon_.dir() + "/nobody.sock", {"-o", path, "--timeout", "1s"}).status,
            4);
  const Finished user = run(daemon_.tcp_target(), {"-o", path, "--for", "100ms"});
  EXPECT_EQ(user.status, 5);
  EXPECT_THAT(user.err, HasSubstr("ROLE"));
  const Finished long_one = run(daemon_.target(), {"-o", path, "--for", "11m"});
  EXPECT_EQ(long_one.status, 5);
  EXPECT_THAT(long_one.err, HasSubstr("10m"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(GemmctlTraceTest, WhatADrainCutShortIsWrittenAsFarAsItCame) {
  const std::string path = daemon_.dir() + "/trace.json";
  Process ctl = Process::Start(
      {GEMMCTL_PATH, "trace", "--server", daemon_.target(), "-o", path, "--for", "10m"},
      daemon_.dir());
  ASSERT_TRUE(WaitUntil([&] { return daemon_.Metric("gemmd_streams", "method=\"Trace\"") == 1; }));
  {
    client::Client client = ConnectTo(daemon_);
    client::Session session = Must(client.OpenSession());
    client::Buffer buffer = MakeBuffer(session, {64, 64});
    for (int i = 0; i < 10; ++i) Must(session.Execute(OpList().Add(Fill{buffer.tensor(), 1})));
  }
  EXPECT_EQ(daemon_.Stop(), 0);
  EXPECT_EQ(ctl.Wait(absl::Minutes(1)), 5) << ctl.err();
  EXPECT_THAT(ctl.err(), HasSubstr("DRAINING"));
  const json document = json::parse(ReadFile(path));
  EXPECT_EQ(document["otherData"]["devices"][0]["programs"], 10);
}

}  // namespace
}  // namespace gemmd::e2e
