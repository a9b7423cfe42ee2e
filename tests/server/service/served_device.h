// A listener over devices that do nothing until the test says so, a tenant "red", and a session.

#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/service/listen/listener.h"
#include "tests/server/engine/fake_backend.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {

class ServedDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { EnableListenerPlugins(); }

  // The session is on the first of `backends`. Returns a channel to the listener.
  std::shared_ptr<grpc::Channel> Serve(const Config& config,
                                       std::vector<std::unique_ptr<kernels::Backend>> backends) {
    state_ = *ServerState::Create(config, std::move(backends), clock_, log_, metrics_, "instance");
    static int count = 0;
    const std::string address = absl::StrCat("unix-abstract:gemmd-served-", getpid(), "-", count++);
    auto listener = Listener::Start({.address = address, .tenant = "red"},
                                    {*state_, live_, streams_, connections_, quota_});
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    SessionStore::OpenOptions options;
    options.device = state_->devices()[0].get();
    session_ = *state_->sessions().Open(*state_->tenants().Find("red"), options);
    return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  }

  FakeDevice device_;
  FakeClock clock_;
  Log log_{LogConfig{.level = LogLevel::kError}};
  Metrics metrics_{"test"};
  LiveCalls live_;
  StreamRegistry streams_;
  guard::Connections connections_{
      {.max = 64, .max_per_peer = 64, .max_streams = 64, .max_unfinished_bytes = 64 << 20},
      [](auto, auto) {}};
  grpc::ResourceQuota quota_;
  std::unique_ptr<ServerState> state_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<Session> session_;
};

}  // namespace gemmd::server
