// A caller of armed plans over the wire alone: opens a region, fetches it from the share socket,
// maps it, arms plans.

#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gemmd/v1/armed_service.grpc.pb.h"
#include "tests/e2e/wire.h"
#include "tests/server/engine/armed_caller.h"

namespace gemmd::e2e {

// What the share socket hands over for a token. Ends the test program when it hands over nothing.
int FetchDescriptor(const std::string& share_socket, const std::string& token);

class ArmedWire {
 public:
  // With a session of its own, or `session`. Ends the test program when there is no region for it.
  explicit ArmedWire(Wire& wire, int slots = 0, const std::string& session = "");
  ~ArmedWire();

  const std::string& session() const { return session_; }
  v1::ArmedService::Stub& stub() { return *stub_; }
  ArmedCaller& caller() { return *caller_; }

  // A plan of the session's.
  std::string Plan(const std::vector<v1::Op>& ops);
  grpc::Status Arm(const v1::ArmPlanRequest& request, v1::ArmedPlan& armed);
  // The slot; ends the test program when it cannot be armed.
  int Arm(const std::string& plan, bool rung_by_stream = false);
  grpc::Status Disarm(const std::vector<int>& slots);
  v1::ListArmedResponse List();

  // Rings and waits: what done said.
  uint32_t Run(int slot) {
    caller_->Ring(slot);
    return caller_->Wait(slot);
  }

 private:
  Wire& wire_;
  std::string session_;
  std::unique_ptr<v1::ArmedService::Stub> stub_;
  int memfd_ = -1, wake_fd_ = -1;
  std::unique_ptr<ArmedCaller> caller_;
};

// A 4 x 4 matmul on buffers of the session: ones times `value`s.
struct ArmedMatmul {
  ArmedMatmul(Wire& wire, const std::string& session, float value);
  std::vector<v1::Op> ops() const;
  // The first element of the product, read over the wire.
  float Result(Wire& wire) const;

  std::string session, a, b, d;
};

}  // namespace gemmd::e2e
