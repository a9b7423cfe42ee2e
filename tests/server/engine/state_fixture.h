// A server without a wire: two fake devices, two tenants, time in the test's hand.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/server_state.h"
#include "tests/server/engine/fake_backend.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {

class StateTest : public ::testing::Test {
 protected:
  // `gpu_uuid`: of both devices; empty when they are none.
  explicit StateTest(Limits limits = {}, const std::string& gpu_uuid = "") {
    Config config;
    config.tenants = {{.name = "red", .limits = limits}, {.name = "blue", .limits = limits}};
    config.share.disabled = true;
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::make_unique<FakeBackend>(device_, "fake:0", gpu_uuid));
    backends.push_back(std::make_unique<FakeBackend>(other_device_, "fake:1", gpu_uuid));
    state_ = *ServerState::Create(config, std::move(backends), clock_, log_, metrics_, "test");
    red_ = state_->tenants().Find("red");
    blue_ = state_->tenants().Find("blue");
  }

  std::shared_ptr<Session> Open(Tenant& tenant) {
    SessionStore::OpenOptions options;
    options.device = state_->devices()[0].get();
    return *state_->sessions().Open(tenant, options);
  }
  Handle AddBuffer(Session& session, int64_t bytes = 1024, int device = 0,
                   kernels::MemoryKind kind = kernels::MemoryKind::kDevice) {
    BufferSpec spec{.size_bytes = bytes, .kind = kind};
    auto buffer =
        Buffer::Create(session.tenant(), *state_->devices()[device], std::move(spec), clock_.Now());
    return *session.AddBuffer({.buffer = *std::move(buffer)});
  }
  int64_t used_bytes(int device = 0) { return state_->devices()[device]->used_bytes(); }

  FakeDevice device_, other_device_;
  FakeClock clock_;
  Log log_{LogConfig{.level = LogLevel::kError}};
  Metrics metrics_{"test"};
  std::unique_ptr<ServerState> state_;
  Tenant* red_ = nullptr;
  Tenant* blue_ = nullptr;
};

}  // namespace gemmd::server
