// What a run costs a caller on this host: an armed matmul of a few elements, rung and awaited by
// the host, against a bare echo RPC and against RunPlan, in turns.
//
//   armed_bench [CALLS]        default 20000

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/floor/echo_client.h"
#include "bench/floor/echo_server.h"
#include "tests/e2e/armed_wire.h"
#include "tests/e2e/daemon.h"

namespace {

using Clock = std::chrono::steady_clock;

// Microseconds, sorted.
std::vector<double> Times(int calls, const std::function<bool()>& call) {
  std::vector<double> times;
  times.reserve(calls);
  for (int i = 0; i < calls; ++i) {
    const Clock::time_point begin = Clock::now();
    if (!call()) {
      std::fprintf(stderr, "armed_bench: a call failed\n");
      std::exit(1);
    }
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times;
}

double At(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * (sorted.size() - 1))];
}

// The echo's other side, in a process of its own as the daemon is.
int ServeEcho(const std::string& address) {
  const auto server = gemmd::bench::EchoServer::Start(address);
  if (!server.ok()) return 1;
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace gemmd::e2e;  // NOLINT: a program of one page
  if (argc == 3 && std::string(argv[1]) == "--echo") return ServeEcho(argv[2]);
  const int calls = argc > 1 ? std::atoi(argv[1]) : 20000;
  Daemon daemon;
  Wire wire(daemon.target());
  ArmedWire armed(wire);
  const ArmedMatmul matmul(wire, armed.session(), 2);
  const std::string plan = armed.Plan(matmul.ops());
  const int slot = armed.Arm(plan);
  const std::string echo_address = "unix-abstract:gemmd-armed-bench-" + std::to_string(getpid());
  const Process peer = Process::Start({"/proc/self/exe", "--echo", echo_address}, daemon.dir());
  gemmd::bench::EchoClient echo(echo_address);
  if (!WaitUntil([&] { return echo.Unary(64).ok(); })) return 1;
  gemmd::v1::RunPlanRequest request;
  request.set_session_id(armed.session());
  request.mutable_run()->set_plan_id(plan);
  const auto run_plan = [&] {
    gemmd::v1::ExecuteResponse response;
    grpc::ClientContext context;
    return wire.compute().RunPlan(&context, request, &response).ok();
  };
  const auto ring = [&] { return armed.Run(slot) == GEMMD_ARMED_RAN; };
  std::vector<double> echoes, rings, runs;
  const auto add = [](std::vector<double>& all, const std::vector<double>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  constexpr int kTurns = 5;
  for (int turn = 0; turn < kTurns; ++turn) {
    add(echoes, Times(calls / kTurns, [&] { return echo.Unary(64).ok(); }));
    add(rings, Times(calls / kTurns, ring));
    add(runs, Times(calls / kTurns, run_plan));
  }
  for (auto* times : {&echoes, &rings, &runs}) std::sort(times->begin(), times->end());
  std::printf("%-12s %10s %10s %10s\n", "us", "p50", "p90", "p99");
  const auto row = [](const char* name, const std::vector<double>& times) {
    std::printf("%-12s %10.2f %10.2f %10.2f\n", name, At(times, 0.5), At(times, 0.9),
                At(times, 0.99));
  };
  row("echo RPC", echoes);
  row("armed", rings);
  row("RunPlan", runs);
  std::printf("armed / echo, p50: %.3f\n", At(rings, 0.5) / At(echoes, 0.5));
}
