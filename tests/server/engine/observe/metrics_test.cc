#include "server/engine/observe/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"

namespace gemmd::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// One series in every family.
void TouchAll(Metrics& metrics) {
  metrics.Requests("Execute", "OK").Increment();
  metrics.RequestSeconds("Execute").Observe(1e-4);
  metrics.Ops("cpu:0", "matmul", "fp32", "cpu_f32", "OK").Increment();
  metrics.Flops("cpu:0", "fp32").Increment(2e9);
  metrics.QueueSeconds("cpu:0", "normal").Observe(1e-5);
  metrics.LaunchSeconds("cpu:0").Observe(1e-6);
  metrics.DeviceSeconds("cpu:0", "cpu_f32").Observe(1e-3);
  metrics.DeviceBusySeconds("cpu:0").Increment(0.5);
  metrics.DeviceTransferSeconds("cuda:0").Increment(0.125);
  metrics.QueuedTransfers("cuda:0").Set(4);
  metrics.QueueDepth("cpu:0", "normal").Set(3);
  metrics.QueuedDeviceSeconds("cpu:0").Set(0.25);
  metrics.Rejected("deadline").Increment();
  metrics.Sessions().Increment();
  metrics.SessionsEnded("closed").Increment();
  metrics.Buffers("cpu:0").Set(2);
  metrics.BufferBytes("cpu:0", "device").Set(4096);
  metrics.Plans().Set(1);
  metrics.Streams("Queue").Increment();
  metrics.Programs().Increment();
  metrics.TransferBytes("cpu:0", "in", "grpc").Increment(1024);
  metrics.TransferSeconds("in").Observe(1e-3);
  metrics.ChecksumFailures().Increment();
  metrics.PlanRuns().Increment();
  metrics.KernelFallback("shape").Increment();
  metrics.KernelQuarantined("cpu:0", "cpu_f32").Set(0);
  metrics.DeviceState("cpu:0", "serving").Set(1);
  metrics.ConfigReloads("ok").Increment();
  metrics.TenantDeviceSeconds("default").Increment(0.5);
  metrics.TenantRejected("default", "QUEUE_LIMIT").Increment();
  metrics.Kernels("cpu:0", "enabled").Set(7);
  metrics.Draining().Set(1);
  metrics.AuthRefusals("BAD_TOKEN").Increment();
  metrics.Tokens().Set(2);
  metrics.TokenFileLoads("invalid").Increment();
  metrics.CertificateExpiry("[::]:8470").Set(1.8e9);
  metrics.CertificateLoads("[::]:8470", "invalid").Increment();
}

TEST(MetricsTest, EveryNameAndLabelIsExported) {
  Metrics metrics("1.2.3");
  TouchAll(metrics);
  const std::string text = metrics.Text();
  for (const char* line : {
           "gemmd_requests_total{code=\"OK\",method=\"Execute\"} 1",
           "gemmd_request_seconds_count{method=\"Execute\"} 1",
           "gemmd_ops_total{device=\"cpu:0\",dtype=\"fp32\",kernel=\"cpu_f32\",op=\"matmul\","
           "status=\"OK\"} 1",
           "gemmd_flops_total{device=\"cpu:0\",dtype=\"fp32\"} 2000000000",
           "gemmd_queue_seconds_count{device=\"cpu:0\",priority=\"normal\"} 1",
           "gemmd_launch_seconds_count{device=\"cpu:0\"} 1",
           "gemmd_device_seconds_count{device=\"cpu:0\",kernel=\"cpu_f32\"} 1",
           "gemmd_device_busy_seconds_total{device=\"cpu:0\"} 0.5",
           "gemmd_queue_depth{device=\"cpu:0\",priority=\"normal\"} 3",
           "gemmd_queued_device_seconds{device=\"cpu:0\"} 0.25",
           "gemmd_device_transfer_seconds_total{device=\"cuda:0\"} 0.125",
           "gemmd_queued_transfers{device=\"cuda:0\"} 4",
           "gemmd_rejected_total{reason=\"deadline\"} 1",
           "gemmd_sessions 1",
           "gemmd_sessions_ended_total{cause=\"closed\"} 1",
           "gemmd_buffers{device=\"cpu:0\"} 2",
           "gemmd_buffer_bytes{device=\"cpu:0\",kind=\"device\"} 4096",
           "gemmd_plans 1",
           "gemmd_streams{method=\"Queue\"} 1",
           "gemmd_programs 1",
           "gemmd_transfer_bytes_total{device=\"cpu:0\",dir=\"in\",path=\"grpc\"} 1024",
           "gemmd_transfer_seconds_count{dir=\"in\"} 1",
           "gemmd_checksum_failures_total 1",
           "gemmd_plan_runs_total 1",
           "gemmd_kernel_fallback_total{reason=\"shape\"} 1",
           "gemmd_kernel_quarantined{device=\"cpu:0\",kernel=\"cpu_f32\"} 0",
           "gemmd_device_state{device=\"cpu:0\",state=\"serving\"} 1",
           "gemmd_config_reloads_total{result=\"ok\"} 1",
           "gemmd_tenant_device_seconds_total{tenant=\"default\"} 0.5",
           "gemmd_tenant_rejected_total{reason=\"QUEUE_LIMIT\",tenant=\"default\"} 1",
           "gemmd_kernels{device=\"cpu:0\",state=\"enabled\"} 7",
           "gemmd_draining 1",
           "gemmd_auth_refusals_total{reason=\"BAD_TOKEN\"} 1",
           "gemmd_tokens 2",
           "gemmd_token_file_loads_total{result=\"invalid\"} 1",
           "gemmd_certificate_loads_total{listener=\"[::]:8470\",result=\"invalid\"} 1",
           "gemmd_certificate_expiry_timestamp_seconds{listener=\"[::]:8470\"} 1800000000",
           "gemmd_build_info{version=\"1.2.3\"} 1",
       }) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
}

TEST(MetricsTest, EveryFamilyHasAHelpText) {
  Metrics metrics("1");
  TouchAll(metrics);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("# HELP gemmd_sessions Sessions open."));
  size_t types = 0, helps = 0;
  for (size_t at = 0; (at = text.find("# TYPE gemmd_", at)) != std::string::npos; ++at) ++types;
  for (size_t at = 0; (at = text.find("# HELP gemmd_", at)) != std::string::npos; ++at) ++helps;
  EXPECT_EQ(types, 41);
  EXPECT_EQ(helps, types);
}

TEST(MetricsTest, SeriesThatMatterExistBeforeTheFirstEvent) {
  const std::string text = Metrics("1").Text();
  for (const char* line :
       {"gemmd_sessions 0", "gemmd_sessions_ended_total{cause=\"expired\"} 0",
        "gemmd_config_reloads_total{result=\"invalid\"} 0", "gemmd_checksum_failures_total 0",
        "gemmd_rejected_total{reason=\"QUEUE_LIMIT\"} 0", "gemmd_draining 0",
        "gemmd_auth_refusals_total{reason=\"BAD_TOKEN\"} 0",
        "gemmd_token_file_loads_total{result=\"invalid\"} 0"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat(line, "\n")));
  }
}

TEST(MetricsTest, TimeBucketsDoubleFromFiveMicroseconds) {
  Metrics metrics("1");
  const auto bounds = [](prometheus::Histogram& histogram) {
    std::vector<double> bounds;
    for (const auto& bucket : histogram.Collect().histogram.bucket) {
      bounds.push_back(bucket.upper_bound);
    }
    return bounds;
  };
  const std::vector<double> time = bounds(metrics.RequestSeconds("Execute"));
  ASSERT_EQ(time.size(), 21 + 1);  // and +Inf
  EXPECT_DOUBLE_EQ(time[0], 5e-6);
  EXPECT_DOUBLE_EQ(time[20], 5e-6 * (1 << 20));
  const std::vector<double> transfer = bounds(metrics.TransferSeconds("in"));
  ASSERT_EQ(transfer.size(), 18 + 1);
  EXPECT_DOUBLE_EQ(transfer[0], 1e-4);
  EXPECT_DOUBLE_EQ(transfer[17], 1e-4 * (1 << 17));
}

TEST(MetricsTest, SameLabelsGiveTheSameObject) {
  Metrics metrics("1");
  EXPECT_EQ(&metrics.Requests("a", "OK"), &metrics.Requests("a", "OK"));
  EXPECT_NE(&metrics.Requests("a", "OK"), &metrics.Requests("a", "INTERNAL"));
  EXPECT_EQ(&metrics.RequestSeconds("a"), &metrics.RequestSeconds("a"));
}

TEST(MetricsTest, NumberOfSeriesIsBoundedWhateverTheLabels) {
  Metrics metrics("1");
  for (int i = 0; i < 10200; ++i) metrics.DeviceBusySeconds(absl::StrCat("device", i)).Increment();
  const std::string text = metrics.Text();
  size_t series = 0;
  for (size_t at = 0;
       (at = text.find("\ngemmd_device_busy_seconds_total{", at)) != std::string::npos; ++at) {
    ++series;
  }
  EXPECT_EQ(series, 10000 + 1);
  EXPECT_EQ(metrics.DeviceBusySeconds("other").Value(), 200);
  EXPECT_EQ(metrics.DeviceBusySeconds("device0").Value(), 1);
}

// Values come from bounded sets; should one ever hold what a client wrote, it cannot end its line.
TEST(MetricsTest, LabelValuesCannotForgeSeries) {
  Metrics metrics("1");
  metrics.Rejected("a\"} 1\ngemmd_forged{x=\"\\").Increment();
  const std::string text = metrics.Text();
  EXPECT_THAT(text, Not(HasSubstr("\ngemmd_forged")));
  EXPECT_THAT(text, HasSubstr("\ngemmd_rejected_total{reason="
                              "\"a\\\"} 1\\ngemmd_forged{x=\\\"\\\\\"} 1\n"));
}

TEST(MetricsTest, ThreadsMayAddTheSameSeriesAtOnce) {
  Metrics metrics("1");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics] {
      for (int i = 0; i < 1000; ++i) metrics.Rejected(absl::StrCat(i % 10)).Increment();
    });
  }
  for (auto& thread : threads) thread.join();
  double sum = 0;
  for (int i = 0; i < 10; ++i) sum += metrics.Rejected(absl::StrCat(i)).Value();
  EXPECT_EQ(sum, 4000);
}

// The whole HTTP answer to a GET of `path`.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n");
  EXPECT_EQ(write(fd, request.data(), request.size()), request.size());
  std::string answer;
  char bytes[4096];
  for (ssize_t got; (got = read(fd, bytes, sizeof(bytes))) > 0;) answer.append(bytes, got);
  close(fd);
  return answer;
}

TEST(MetricsServerTest, ScrapeReturnsTheText) {
  Metrics metrics("1.2.3");
  metrics.Requests("Execute", "OK").Increment();
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->port(), 0);
  EXPECT_THAT(Get((*server)->port(), "/metrics"),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("text/plain"),
                    HasSubstr("gemmd_build_info{version=\"1.2.3\"} 1"),
                    HasSubstr("gemmd_requests_total{code=\"OK\",method=\"Execute\"} 1")));
}

TEST(MetricsServerTest, OtherPathsHoldNothing) {
  Metrics metrics("1");
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  for (const char* path : {"/", "/../../etc/passwd", "/etc/passwd"}) {
    EXPECT_THAT(Get((*server)->port(), path), Not(StartsWith("HTTP/1.1 200"))) << path;
  }
}

TEST(MetricsServerTest, ServesAfterPeersThatSayNothing) {
  Metrics metrics("1");
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>((*server)->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < 20; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    if (i % 2 == 0) {
      EXPECT_EQ(write(fd, "GET", 3), 3);
    }
    close(fd);
  }
  EXPECT_THAT(Get((*server)->port(), "/metrics"), StartsWith("HTTP/1.1 200"));
}

int ConnectTo(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// More of them than it keeps, too.
TEST(MetricsServerTest, HalfRequestsKeepNobodyOut) {
  Metrics metrics("1");
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  // Each gives up its place after 5 seconds: were a scrape to wait for one, it would take longer
  // than this every time, and not on a busy machine alone.
  constexpr absl::Duration kSoon = absl::Seconds(4);
  for (const int count : {24, 200}) {
    absl::Duration took = absl::InfiniteDuration();
    for (int tries = 0; tries < 5 && took >= kSoon; ++tries) {
      std::vector<int> slow;
      for (int i = 0; i < count; ++i) {
        slow.push_back(ConnectTo((*server)->port()));
        EXPECT_EQ(write(slow.back(), "GET /metrics HTTP/1.1\r\n", 23), 23);
      }
      const absl::Time begin = absl::Now();
      for (int i = 0; i < 4; ++i) {
        EXPECT_THAT(Get((*server)->port(), "/metrics"), StartsWith("HTTP/1.1 200"));
      }
      took = absl::Now() - begin;
      for (const int fd : slow) close(fd);
    }
    EXPECT_LT(took, kSoon) << count;
  }
}

TEST(MetricsServerTest, ARequestInPiecesIsServed) {
  Metrics metrics("1");
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  const int fd = ConnectTo((*server)->port());
  for (const char byte : std::string("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")) {
    EXPECT_EQ(write(fd, &byte, 1), 1);
    std::this_thread::yield();
  }
  std::string text;
  char bytes[4096];
  for (ssize_t got; (got = read(fd, bytes, sizeof(bytes))) > 0;) text.append(bytes, got);
  close(fd);
  EXPECT_THAT(text, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("gemmd_build_info")));
}

// They take what they asked for late, and one that never does has its place taken.
TEST(MetricsServerTest, PeersThatDoNotReadTheirAnswerKeepNobodyOut) {
  Metrics metrics("1");
  const auto server = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<int> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(ConnectTo((*server)->port()));
    EXPECT_EQ(write(slow.back(), "GET /metrics HTTP/1.1\r\n\r\n", 25), 25);
  }
  EXPECT_THAT(Get((*server)->port(), "/metrics"), StartsWith("HTTP/1.1 200"));
  for (const int fd : slow) close(fd);
}

TEST(MetricsServerTest, PortInUseIsUnavailable) {
  Metrics metrics("1");
  const auto first = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string taken = absl::StrCat("127.0.0.1:", (*first)->port());
  const auto second = MetricsServer::Start(taken, metrics);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(taken));
}

TEST(MetricsServerTest, StoppingFreesThePort) {
  Metrics metrics("1");
  auto first = MetricsServer::Start("127.0.0.1:0", metrics);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = absl::StrCat("127.0.0.1:", (*first)->port());
  first->reset();
  EXPECT_TRUE(MetricsServer::Start(address, metrics).ok());
}

}  // namespace
}  // namespace gemmd::server
