// What most end-to-end tests begin with: a daemon, a client, a session, and small helpers around
// the C++ client.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/cpp/client.h"
#include "client/cpp/errors.h"
#include "tests/e2e/daemon.h"

namespace gemmd::e2e {

// The value of a StatusOr, or the end of the test program with the error.
template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::abort();
  }
  return *std::move(value);
}

inline client::Client ConnectTo(const Daemon& daemon, const std::string& tenant = "default") {
  return Must(client::Client::Connect(daemon.target(tenant)));
}

inline client::Buffer MakeBuffer(client::Session& session, std::vector<int64_t> shape,
                                 client::DType dtype = client::DType::kF32) {
  return Must(session.CreateBuffer({.dtype = dtype, .shape = std::move(shape)}));
}

inline std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

inline std::vector<float> FloatsOf(const client::Result& result, int output = 0) {
  const absl::Span<const float> span = result.Output<float>(output);
  return {span.begin(), span.end()};
}

class E2eTest : public testing::Test {
 protected:
  explicit E2eTest(const DaemonOptions& options = {})
      : daemon_(options), client_(ConnectTo(daemon_)), session_(Must(client_.OpenSession())) {}

  Daemon daemon_;
  client::Client client_;
  client::Session session_;
};

}  // namespace gemmd::e2e
