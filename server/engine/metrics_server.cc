#include <netdb.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "prometheus/exposer.h"
#include "prometheus/registry.h"
#include "server/engine/metrics.h"
#include "server/engine/share.h"

namespace gemmd::server {
namespace {

// Connects and hangs up. What fails does so silently: the caller only wants to be noticed.
void Knock(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) return;
  const UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.valid()) (void)connect(fd.get(), found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
}

// "[::1]:8471" -> "::1"
std::string HostOf(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

struct MetricsServer::Impl {
  std::unique_ptr<prometheus::Exposer> exposer;
  std::string host;
  int port = 0;
};

MetricsServer::MetricsServer() : impl_(std::make_unique<Impl>()) {}

// The HTTP server's acceptor looks for the end every 2 s, or when somebody connects: without the
// knocks every stop of the daemon would last that much longer.
MetricsServer::~MetricsServer() {
  std::atomic<bool> stopped{false};
  std::thread knocker([&] {
    while (!stopped) {
      Knock(impl_->host, impl_->port);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  impl_->exposer.reset();
  stopped = true;
  knocker.join();
}

int MetricsServer::port() const { return impl_->port; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    const Metrics& metrics) {
  const std::vector<std::string> options = {
      "listening_ports",    address, "num_threads", "2",  // a scraper and a curious person
      "request_timeout_ms", "5000",  // a peer that says nothing gives its thread back
  };
  const auto refused = [&](const char* why) {
    return absl::UnavailableError(absl::StrCat("metrics.address: cannot listen on ", address, " (",
                                               why, "); free the port or choose another"));
  };
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(options);
    exposer->RegisterCollectable(metrics.registry());
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (ports.empty()) return refused("no port was bound");
    auto server = std::unique_ptr<MetricsServer>(new MetricsServer);
    server->impl_->exposer = std::move(exposer);
    server->impl_->host = HostOf(address);
    server->impl_->port = ports.front();
    return server;
  } catch (const std::exception& error) {  // the HTTP server's only way to say that it cannot bind
    return refused(error.what());
  }
}

}  // namespace gemmd::server
