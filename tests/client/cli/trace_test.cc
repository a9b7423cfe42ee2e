#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/trace/chrome_trace.h"
#include "client/cli/trace/rows.h"
#include "client/cli/trace/sink.h"
#include "client/cli/trace/summary.h"

namespace gemmd::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::TraceEvent Event(v1::TraceEvent::Kind kind, int64_t begin_ns, int64_t duration_ns) {
  v1::TraceEvent event;
  event.set_kind(kind);
  event.set_begin_ns(begin_ns);
  event.set_duration_ns(duration_ns);
  event.set_tenant("red");
  if (kind != v1::TraceEvent::KIND_CALL) event.set_device("cpu:0");
  return event;
}

v1::TraceEvent Of(v1::TraceEvent event, uint64_t program, const std::string& name = "") {
  event.set_program(program);
  event.set_name(name);
  return event;
}

// The document, read back by a parser that knows nothing of how it was written.
json Draw(const std::vector<v1::TraceEvent>& events, const Json& about = Json::object()) {
  std::string text;
  ChromeTrace trace(text);
  for (const v1::TraceEvent& event : events) trace.Add(event);
  trace.Close(about);
  return json::parse(text);
}

// Events of a phase, in the file's order.
std::vector<json> Phase(const json& document, const std::string& phase) {
  std::vector<json> events;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] == phase) events.push_back(event);
  }
  return events;
}

// "cpu:0/queue red" of a slice.
std::string RowOf(const json& document, const json& slice) {
  std::string process, thread;
  for (const json& event : Phase(document, "M")) {
    if (event["pid"] != slice["pid"]) continue;
    if (event["name"] == "process_name") process = event["args"]["name"];
    if (event["name"] == "thread_name" && event["tid"] == slice["tid"]) {
      thread = event["args"]["name"];
    }
  }
  return process + "/" + thread;
}

int64_t Ns(const json& micros) { return std::llround(micros.get<double>() * 1000); }

// In each row a slice lies within the one before it or begins at its end or later.
void ExpectNesting(const json& document) {
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> rows;
  for (const json& slice : Phase(document, "X")) {
    rows[slice["tid"].get<int64_t>()].emplace_back(Ns(slice["ts"]),
                                                   -(Ns(slice["ts"]) + Ns(slice["dur"])));
  }
  for (auto& [tid, slices] : rows) {
    std::sort(slices.begin(), slices.end());  // by begin, the longest first
    std::vector<int64_t> open;
    for (const auto& [begin, minus_end] : slices) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      EXPECT_TRUE(open.empty() || -minus_end <= open.back()) << "row " << tid << " at " << begin;
      open.push_back(-minus_end);
    }
  }
}

TEST(RowsTest, ASliceGetsARowThatIsFreeAndWasInUseLast) {
  Rows rows(3);
  EXPECT_EQ(rows.Place(0, 10), 0);
  EXPECT_EQ(rows.Place(5, 8), 1);
  EXPECT_EQ(rows.Place(10, 12), 0);  // both are free: row 0 ended last
  EXPECT_EQ(rows.Place(11, 20), 1);
  EXPECT_EQ(rows.Place(11, 12), 2);
  EXPECT_EQ(rows.Place(11, 12), -1);
  EXPECT_EQ(rows.Place(12, 13), 0);
}

TEST(ChromeTraceTest, AProgramIsThreeRowsOfItsDeviceJoinedByAFlow) {
  const json document = Draw({Of(Event(v1::TraceEvent::KIND_LAUNCH, 1500, 250), 7),
                              Of(Event(v1::TraceEvent::KIND_QUEUE, 1000, 1001), 7),
                              Of(Event(v1::TraceEvent::KIND_DEVICE, 2001, 3000), 7),
                              Of(Event(v1::TraceEvent::KIND_OP, 2001, 1000), 7, "cpu_fill"),
                              Of(Event(v1::TraceEvent::KIND_OP, 3001, 2000), 7, "cpu_copy")});
  EXPECT_EQ(document["displayTimeUnit"], "ns");
  const std::vector<json> slices = Phase(document, "X");
  ASSERT_EQ(slices.size(), 5u);
  EXPECT_EQ(RowOf(document, slices[0]), "cpu:0/launch");
  EXPECT_EQ(RowOf(document, slices[1]), "cpu:0/queue red");
  for (int i : {2, 3, 4}) EXPECT_EQ(RowOf(document, slices[i]), "cpu:0/device");
  EXPECT_EQ(slices[1]["name"], "wait");
  EXPECT_EQ(slices[1]["cat"], "queue");
  EXPECT_EQ(Ns(slices[1]["ts"]), 1000);
  EXPECT_EQ(Ns(slices[1]["dur"]), 1001);
  EXPECT_EQ(slices[2]["name"], "red");
  EXPECT_EQ(slices[4]["name"], "cpu_copy");
  EXPECT_EQ(slices[4]["cat"], "op");
  for (const json& slice : slices) EXPECT_EQ(slice["args"]["program"], 7);
  for (int i : {0, 1, 2}) EXPECT_EQ(slices[i]["bind_id"], "7");
  EXPECT_TRUE(slices[1].value("flow_out", false) && !slices[1].value("flow_in", false));
  EXPECT_TRUE(slices[0].value("flow_out", false) && slices[0].value("flow_in", false));
  EXPECT_TRUE(!slices[2].value("flow_out", false) && slices[2].value("flow_in", false));
  ExpectNesting(document);
}

TEST(ChromeTraceTest, TimesKeepTheirNanoseconds) {
  for (const int64_t ns : {int64_t{0}, int64_t{1}, int64_t{999}, int64_t{1000}, int64_t{1'002'003},
                           int64_t{600'000'000'007}}) {
    const json document = Draw({Event(v1::TraceEvent::KIND_CALL, ns, ns)});
    EXPECT_EQ(Ns(Phase(document, "X")[0]["ts"]), ns);
    EXPECT_EQ(Ns(Phase(document, "X")[0]["dur"]), ns);
  }
}

TEST(ChromeTraceTest, WhatBeganBeforeTheTraceIsDrawnFromItsBegin) {
  const json document = Draw({Event(v1::TraceEvent::KIND_CALL, -5000, 6000)});
  EXPECT_EQ(Ns(Phase(document, "X")[0]["ts"]), 0);
  EXPECT_EQ(Ns(Phase(document, "X")[0]["dur"]), 1000);
}

TEST(ChromeTraceTest, CallsAndTransfersAreTheirTenants) {
  v1::TraceEvent call = Of(Event(v1::TraceEvent::KIND_CALL, 0, 10), 0, "Execute");
  call.set_trace_id("4bf92f3577b34da6a3ce929d0e0e4736");
  v1::TraceEvent upload = Of(Event(v1::TraceEvent::KIND_TRANSFER, 0, 10), 0, "Upload");
  upload.set_bytes(4096);
  v1::TraceEvent nobodys = Event(v1::TraceEvent::KIND_CALL, 0, 10);
  nobodys.clear_tenant();
  const json document = Draw({call, upload, nobodys});
  const std::vector<json> slices = Phase(document, "X");
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(RowOf(document, slices[0]), "tenant red/calls");
  EXPECT_EQ(slices[0]["name"], "Execute");
  EXPECT_EQ(slices[0]["args"]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(RowOf(document, slices[1]), "tenant red/transfers");
  EXPECT_EQ(slices[1]["args"]["bytes"], 4096);
  EXPECT_EQ(slices[1]["args"]["device"], "cpu:0");
  EXPECT_EQ(RowOf(document, slices[2]), "no tenant/calls");
}

TEST(ChromeTraceTest, SlicesThatOverlapHaveRowsOfTheirOwnAndTheManyAreAsync) {
  std::vector<v1::TraceEvent> events;
  const int many = ChromeTrace::kMostRows + 5;
  for (int i = 0; i < many; ++i) {
    events.push_back(Of(Event(v1::TraceEvent::KIND_QUEUE, 10 * i, 1000), i + 1));
  }
  const json document = Draw(events);
  const std::vector<json> slices = Phase(document, "X");
  EXPECT_EQ(slices.size(), static_cast<size_t>(ChromeTrace::kMostRows));
  std::set<std::string> rows;
  for (const json& slice : slices) rows.insert(RowOf(document, slice));
  EXPECT_EQ(rows.size(), static_cast<size_t>(ChromeTrace::kMostRows));
  EXPECT_TRUE(rows.contains("cpu:0/queue red") && rows.contains("cpu:0/queue red 16"));
  ExpectNesting(document);
  const std::vector<json> begins = Phase(document, "b"), ends = Phase(document, "e");
  ASSERT_EQ(begins.size(), 5u);
  ASSERT_EQ(ends.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(begins[i]["id"], ends[i]["id"]);
    EXPECT_EQ(begins[i]["cat"], ends[i]["cat"]);
    EXPECT_EQ(Ns(ends[i]["ts"]) - Ns(begins[i]["ts"]), 1000);
  }
  EXPECT_NE(begins[0]["id"], begins[1]["id"]);
}

TEST(ChromeTraceTest, ProgramsThatSeemToOverlapOnTheirDeviceAreDrawnOneAfterTheOther) {
  const json document = Draw({Of(Event(v1::TraceEvent::KIND_DEVICE, 1000, 1000), 1),
                              Of(Event(v1::TraceEvent::KIND_OP, 1000, 1000), 1, "a"),
                              Of(Event(v1::TraceEvent::KIND_DEVICE, 1990, 1000), 2),
                              Of(Event(v1::TraceEvent::KIND_OP, 1990, 400), 2, "b"),
                              Of(Event(v1::TraceEvent::KIND_OP, 2390, 600), 2, "c")});
  const std::vector<json> slices = Phase(document, "X");
  ASSERT_EQ(slices.size(), 5u);
  for (const json& slice : slices) EXPECT_EQ(RowOf(document, slice), "cpu:0/device");
  EXPECT_EQ(Ns(slices[2]["ts"]), 2000);
  EXPECT_EQ(Ns(slices[2]["dur"]), 990);
  EXPECT_EQ(Ns(slices[3]["ts"]), 2000);
  EXPECT_EQ(Ns(slices[4]["ts"]) + Ns(slices[4]["dur"]), 2990);
  ExpectNesting(document);
}

TEST(ChromeTraceTest, OpsOfAProgramThatWasDroppedAreDrawnAllTheSame) {
  const json document = Draw({Of(Event(v1::TraceEvent::KIND_DEVICE, 0, 100), 1),
                              Of(Event(v1::TraceEvent::KIND_OP, 200, 100), 2, "cpu_fill")});
  ASSERT_EQ(Phase(document, "X").size(), 2u);
  EXPECT_EQ(Ns(Phase(document, "X")[1]["ts"]), 200);
}

TEST(ChromeTraceTest, OpsThatWereNotTimedSaySo) {
  v1::TraceEvent op = Of(Event(v1::TraceEvent::KIND_OP, 0, 50), 1, "sm90_fp8");
  op.set_estimated(true);
  const json slice = Phase(Draw({Of(Event(v1::TraceEvent::KIND_DEVICE, 0, 100), 1), op}), "X")[1];
  EXPECT_EQ(slice["args"]["estimated"], true);
  EXPECT_EQ(slice["cat"], "op,estimated");
}

TEST(ChromeTraceTest, NamesOfAnyKindAreOneJsonString) {
  const std::string hostile = "a\"},{\"ph\":\"X\\\n\t\x01</script>\u00e9";
  v1::TraceEvent call = Of(Event(v1::TraceEvent::KIND_CALL, 0, 1), 0, hostile);
  call.set_tenant(hostile);
  call.set_trace_id(hostile);
  v1::TraceEvent op = Of(Event(v1::TraceEvent::KIND_OP, 0, 1), 1, hostile);
  op.set_device(hostile);
  v1::TraceEvent upload = Event(v1::TraceEvent::KIND_TRANSFER, 0, 1);
  upload.set_device(hostile);
  const json document = Draw({call, op, upload}, {{"server", hostile}});
  const std::vector<json> slices = Phase(document, "X");
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[0]["name"], hostile);
  EXPECT_EQ(slices[0]["args"]["trace_id"], hostile);
  EXPECT_EQ(RowOf(document, slices[0]), "tenant " + hostile + "/calls");
  EXPECT_EQ(slices[1]["name"], hostile);
  EXPECT_EQ(RowOf(document, slices[1]), hostile + "/device");
  EXPECT_EQ(slices[2]["args"]["device"], hostile);
  EXPECT_EQ(document["otherData"]["server"], hostile);
}

TEST(ChromeTraceTest, BytesThatAreNotTextDoNotBreakTheDocument) {
  v1::TraceEvent call = Event(v1::TraceEvent::KIND_CALL, 0, 1);
  call.set_tenant("\xff\xfe");
  EXPECT_EQ(Phase(Draw({call}), "X").size(), 1u);
}

TEST(ChromeTraceTest, ATraceOfNothingIsADocumentWithItsDevices) {
  std::string text;
  ChromeTrace trace(text);
  trace.AddDevice("cuda:0");
  trace.Close({{"events", 0}});
  const json document = json::parse(text);
  EXPECT_EQ(document["traceEvents"][0]["args"]["name"], "cuda:0");
  EXPECT_EQ(document["otherData"]["events"], 0);
}

TEST(ChromeTraceTest, KindsOfALaterServerAreLeftOut) {
  EXPECT_TRUE(Phase(Draw({Event(static_cast<v1::TraceEvent::Kind>(99), 0, 1)}), "X").empty());
}

TEST(TraceSummaryTest, BusyIsWhatLiesInsideTheTrace) {
  TraceSummary summary;
  summary.AddDevice("cpu:0");
  summary.AddDevice("cuda:0");
  summary.Add(Event(v1::TraceEvent::KIND_DEVICE, -1'000'000'000, 1'500'000'000));
  summary.Add(Event(v1::TraceEvent::KIND_DEVICE, 1'000'000'000, 500'000'000));
  summary.Add(Event(v1::TraceEvent::KIND_QUEUE, 0, 2'000'000));
  summary.Add(Event(v1::TraceEvent::KIND_QUEUE, 0, 4'000'000));
  v1::TraceEvent upload = Event(v1::TraceEvent::KIND_TRANSFER, 0, 1);
  upload.set_bytes(1 << 20);
  summary.Add(upload);
  summary.Add(Event(v1::TraceEvent::KIND_CALL, 0, 1));
  summary.set_dropped(3);
  const Json document = summary.ToJson(absl::Seconds(4));
  EXPECT_EQ(document["events"], 6);
  EXPECT_EQ(document["dropped"], 3);
  EXPECT_EQ(document["transfer_bytes"], 1 << 20);
  EXPECT_EQ(document["devices"][0]["name"], "cpu:0");
  EXPECT_DOUBLE_EQ(document["devices"][0]["busy"].get<double>(), 0.25);
  EXPECT_EQ(document["devices"][0]["programs"], 2);
  EXPECT_DOUBLE_EQ(document["devices"][0]["mean_wait_seconds"].get<double>(), 0.003);
  EXPECT_EQ(document["devices"][1]["busy"], 0);
  EXPECT_THAT(summary.Text(absl::Seconds(4)),
              AllOf(HasSubstr("6 events"), HasSubstr("3 dropped"), HasSubstr("25.0 %"),
                    HasSubstr("3.00 ms"), HasSubstr("1.00 MiB")));
}

class SinkTest : public testing::Test {
 protected:
  SinkTest() : dir_(testing::TempDir() + "gemmctl-trace-XXXXXX") {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
  }
  ~SinkTest() override { std::filesystem::remove_all(dir_); }
  size_t Files() const {
    return std::distance(std::filesystem::directory_iterator(dir_),
                         std::filesystem::directory_iterator());
  }
  std::string dir_;
};

TEST_F(SinkTest, AFileHasItsNameOnceItIsWhole) {
  const std::string path = dir_ + "/trace.json";
  {
    Sink given_up;
    ASSERT_TRUE(given_up.Open(path).ok());
    given_up.text() = "half";
  }
  EXPECT_EQ(Files(), 0u);
  Sink sink;
  ASSERT_TRUE(sink.Open(path).ok());
  const std::string piece(300'000, 'x');
  for (int i = 0; i < 10; ++i) {
    sink.text() += piece;
    EXPECT_TRUE(sink.FlushWhenMuch().ok());
  }
  EXPECT_LT(sink.text().size(), size_t{1} << 20);
  EXPECT_EQ(Files(), 0u);
  ASSERT_TRUE(sink.Commit().ok());
  EXPECT_EQ(Files(), 1u);
  EXPECT_EQ(std::filesystem::file_size(path), 10 * piece.size());
}

TEST_F(SinkTest, AFolderThatIsNotThereIsToldByName) {
  Sink sink;
  const absl::Status status = sink.Open(dir_ + "/none/trace.json");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("none/trace.json"));
}

}  // namespace
}  // namespace gemmd::cli
