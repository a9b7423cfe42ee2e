// What `gemmctl info` says of how callers share a GPU with the server.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/device_service.grpc.pb.h"
#include "tests/e2e/process.h"

namespace gemmd::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A server with one device.
class OneDevice final : public v1::DeviceService::Service {
 public:
  OneDevice(bool is_gpu, bool under_mps)
      : is_gpu_(is_gpu),
        under_mps_(under_mps),
        target_(absl::StrCat("unix-abstract:gemmd-info-", getpid(), "-", is_gpu, under_mps)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(target_, grpc::InsecureServerCredentials()).RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~OneDevice() override { server_->Shutdown(std::chrono::system_clock::now()); }

  // What `gemmctl info` prints.
  std::string Info(const std::string& flag = "--timeout=20s") const {
    const e2e::Finished done = e2e::RunToEnd({GEMMCTL_PATH, "info", "--server", target_, flag});
    EXPECT_EQ(done.status, 0) << done.err;
    return done.out;
  }

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    info->set_version("0.1.0");
    info->set_under_mps(under_mps_);
    return grpc::Status::OK;
  }
  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* response) override {
    v1::Device* device = response->add_devices();
    device->set_name(is_gpu_ ? "cuda:0" : "cpu:0");
    if (is_gpu_) device->set_gpu_uuid("GPU-5c3f12ab");
    return grpc::Status::OK;
  }
  grpc::Status ListKernels(grpc::ServerContext*, const v1::ListKernelsRequest*,
                           v1::ListKernelsResponse*) override {
    return grpc::Status::OK;
  }

 private:
  const bool is_gpu_, under_mps_;
  const std::string target_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(InfoTest, SaysThatCallersTakeTurnsWithTheServerWhereThereIsNoMps) {
  const OneDevice server(/*is_gpu=*/true, /*under_mps=*/false);
  EXPECT_THAT(server.Info(), HasSubstr("GPU sharing  time slices: callers take turns"));
  EXPECT_THAT(server.Info(), HasSubstr("docs/operations.md"));
  EXPECT_FALSE(nlohmann::json::parse(server.Info("--json")).at("under_mps"));
}

TEST(InfoTest, SaysThatTheyRunBesideItUnderMps) {
  const OneDevice server(/*is_gpu=*/true, /*under_mps=*/true);
  EXPECT_THAT(server.Info(), HasSubstr("GPU sharing  MPS: callers run beside the server"));
  EXPECT_TRUE(nlohmann::json::parse(server.Info("--json")).at("under_mps"));
}

TEST(InfoTest, SaysNothingOfItWithoutAGpu) {
  const OneDevice server(/*is_gpu=*/false, /*under_mps=*/false);
  EXPECT_THAT(server.Info(), Not(HasSubstr("GPU sharing")));
}

}  // namespace
}  // namespace gemmd::cli
