// One request that must be refused, with what the refusal must say. The test around it (see
// bad_input_test.cc) also checks that nothing is left behind and that the daemon serves on.

#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/e2e/wire.h"

namespace gemmd::e2e {

// What a case finds prepared: a session with three buffers of kBytes, all of it zeros.
struct Prepared {
  static constexpr int64_t kBytes = 4096;
  Wire& wire;
  std::string session;
  std::string a;
  std::string b;
  std::string d;
};

struct BadInput {
  std::string name;
  grpc::StatusCode code;
  std::vector<std::string> says;  // value, limit, remedy: all must be in the message
  std::function<grpc::Status(Prepared&)> send;
};
inline void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.name; }

// A plan of `ops`, run once as `spoil` leaves the run, and deleted. UNKNOWN when it cannot be made.
grpc::Status RunPlan(Prepared& p, const std::vector<v1::Op>& ops,
                     const std::function<void(v1::PlanRun&)>& spoil);

std::vector<BadInput> BadTensors();    // shapes, strides, offsets, dtypes, scales, aliasing
std::vector<BadInput> BadPrograms();   // op lists, inline data, handles, sessions, plans
std::vector<BadInput> BadBuffers();    // creation, transfers, names, shared memory
std::vector<BadInput> BadChoose();     // experts, groups and numbers of Choose
std::vector<BadInput> BadGated();      // columns, periods, numbers and scales of Gated
std::vector<BadInput> BadGrouped();    // layouts, shapes and numbers of groups
std::vector<BadInput> BadKGrouped();   // the same of columns
std::vector<BadInput> BadNormalize();  // shapes, numbers and scales of Normalize
std::vector<BadInput> BadShared();     // inline data in memory that the request names
std::vector<BadInput> BadQueues();     // the Queue stream's protocol

}  // namespace gemmd::e2e
