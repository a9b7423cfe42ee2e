// Every attack at every kind of listener, for a while each: what it costs the daemon, and somebody
// else. A table on standard output.
//
//   hostile_measure [--seconds 60] [--settle 60] [--attack NAME]... [--listener NAME]...

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/secured.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/bystander.h"

namespace gemmd::hostile {
namespace {

constexpr double kMiB = 1 << 20;
constexpr absl::Duration kAlone = absl::Seconds(10);
// Calls before the first figure: a new daemon's memory is not yet what it will be.
constexpr absl::Duration kWarmUp = absl::Seconds(3);

struct Options {
  absl::Duration attack_time = absl::Seconds(60);
  absl::Duration settle = absl::Seconds(60);
  std::vector<std::string> attacks;  // none: all
  std::vector<std::string> listeners;
};

bool IsIn(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

// Where an attack arrives, and how the attacker and somebody else come there.
struct Place {
  const char* name;
  std::function<std::string(e2e::Secured&)> target;
  bool tls;
  bool certificate;  // the attacker has one of the right authority that names nobody
  std::function<client::ClientOptions(e2e::Secured&)> other;
};

std::vector<Place> Places() {
  return {
      {"plaintext token", [](e2e::Secured& s) { return s.by_token(); }, false, false,
       [](e2e::Secured& s) { return s.WithToken("user"); }},
      {"TLS token", [](e2e::Secured& s) { return s.by_either(); }, true, false,
       [](e2e::Secured& s) { return s.WithToken("user", true); }},
      {"TLS certificate", [](e2e::Secured& s) { return s.by_certificate(); }, true, true,
       [](e2e::Secured& s) { return s.WithCertificate("user"); }},
      {"plaintext anybody", [](e2e::Secured& s) { return s.daemon().tcp_target(); }, false, false,
       [](e2e::Secured&) { return client::ClientOptions(); }},
  };
}

double Ms(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

// What is left of a measurement when its attack is over: the next one may begin meanwhile, since the
// other's calls have ended with it.
struct Settling {
  std::unique_ptr<e2e::Secured> secured;
  std::string row;  // but for the memory that is left
  double start = 0, peak = 0;
  absl::Time since;

  void Finish(absl::Duration settle) {
    absl::SleepFor(since + settle - absl::Now());
    const double after = e2e::UseOf(secured->daemon().process().pid()).resident_bytes / kMiB;
    std::printf("%s %.0f | %.0f | %.0f |\n", row.c_str(), start, peak, after);
    std::fflush(stdout);
  }
};

Settling Measure(const NamedAttack& attack, const Place& place, const Options& options) {
  auto owned = std::make_unique<e2e::Secured>();
  e2e::Secured& secured = *owned;
  const pid_t pid = secured.daemon().process().pid();
  const std::string target = place.target(secured);
  client::Client client = e2e::Must(client::Client::Connect(target, place.other(secured)));
  client::Session session = e2e::Must(client.OpenSession());
  client::Buffer x = e2e::MakeBuffer(session, {4, 4});
  client::Buffer y = e2e::MakeBuffer(session, {4, 4});
  client::OpList ops;
  ops.Add(client::Fill{x.tensor(), 1});
  ops.Add(client::Matmul{.a = x.tensor(), .b = x.tensor(), .d = y.tensor()});
  const auto channel =
      grpc::CreateChannel(target, place.tls ? secured.RawTls(secured.CallerIdentity("user"))
                                            : grpc::InsecureChannelCredentials());
  Bystander other(channel, [&] { return session.Execute(ops).ok(); });
  absl::SleepFor(kWarmUp);
  other.TakeHealth();
  other.TakeExecutes();
  absl::SleepFor(kAlone);
  const Latencies health_alone = other.TakeHealth(), execute_alone = other.TakeExecutes();
  const double start = e2e::UseOf(pid).resident_bytes / kMiB;
  PeerOptions peer{.target = target, .source = "127.0.0.2", .tls = place.tls};
  if (place.certificate) peer.identity = secured.CallerIdentity("stranger");
  double peak = 0;
  AttackCounts counts;
  {
    PeakMemory memory(pid);
    counts = attack.run(peer, absl::Now() + options.attack_time);
    peak = memory.bytes() / kMiB;
  }
  const Latencies health = other.TakeHealth(), execute = other.TakeExecutes();
  char row[400];
  std::snprintf(row, sizeof(row),
                "| %s | %s | %.2f / %.2f | %.2f / %.2f | %lld of %zu | %lld / %lld / %lld |",
                attack.name, place.name, Ms(health_alone.Percentile(99)),
                Ms(health.Percentile(99)), Ms(execute_alone.Percentile(99)),
                Ms(execute.Percentile(99)),
                static_cast<long long>(health.failed + execute.failed),
                health.ok.size() + execute.ok.size(), static_cast<long long>(counts.connections),
                static_cast<long long>(counts.cut), static_cast<long long>(counts.sent));
  return {std::move(owned), row, start, peak, absl::Now()};
}

int Run(const Options& options) {
  std::printf(
      "| attack | listener | health p99 ms alone / under | Execute p99 ms alone / under | failed "
      "calls | connections / cut / sent | RSS start MiB | peak | after |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  std::optional<Settling> last;
  for (const NamedAttack& attack : AllAttacks()) {
    for (const Place& place : Places()) {
      const bool wanted = IsIn(options.attacks, attack.name) && IsIn(options.listeners, place.name);
      if (!wanted) continue;
      Settling next = Measure(attack, place, options);
      if (last) last->Finish(options.settle);
      last = std::move(next);
    }
  }
  if (last) last->Finish(options.settle);
  return 0;
}

}  // namespace
}  // namespace gemmd::hostile

int main(int argc, char** argv) {
  gemmd::hostile::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--seconds") options.attack_time = absl::Seconds(std::atoi(argv[i + 1]));
    if (name == "--settle") options.settle = absl::Seconds(std::atoi(argv[i + 1]));
    if (name == "--attack") options.attacks.push_back(argv[i + 1]);
    if (name == "--listener") options.listeners.push_back(argv[i + 1]);
  }
  return gemmd::hostile::Run(options);
}
