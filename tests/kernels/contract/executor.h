// Executor: whatever runs ops. The contract suite speaks to nothing else, so that one set of tests
// judges the CPU backend, the CUDA backend and a daemon behind a network alike.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "tests/sanitized.h"

namespace gemmd::kernels::contract {

using Bytes = std::vector<std::byte>;

struct Outcome {
  std::vector<Bytes> slots;          // every slot's contents afterwards
  std::vector<Bytes> outputs;        // by ReadOp::output
  std::vector<std::string> kernels;  // one per op: which kernel ran
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Gives each slot memory with these contents, runs `ops` once as one program, and returns what is
  // left. `inputs` are by WriteOp::input, `output_bytes` the length of each ReadOp::output. Invalid
  // ops are refused with the status that ValidateOps gives them. Slots may be empty.
  virtual absl::StatusOr<Outcome> Run(absl::Span<const Op> ops, absl::Span<const Bytes> slots,
                                      absl::Span<const Bytes> inputs,
                                      absl::Span<const int64_t> output_bytes) = 0;
};

// How to make the executor under test; `name` ends up in the tests' names.
struct Subject {
  std::string name;
  std::function<std::unique_ptr<Executor>()> make;
  int random_shapes = 200;  // fewer for a second look at the same kernels
  bool some = false;        // of a sweep's cases: where the way to the kernels is what differs
};

// What GoogleTest and CTest call it.
inline void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

// Link gemmd_contract_suite and instantiate the suite in one file:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, ContractTest, testing::Values(Subject{"cpu", MakeIt}));
class ContractTest : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override { executor_ = GetParam().make(); }
  Executor& executor() { return *executor_; }
  // Whether the next case of a sweep is to run: every one, or each seventh. No loop of a sweep has
  // a length that seven divides, so each of its values still has its turn. A sanitizer sees in some
  // cases of a kernel what it would see in all.
  bool Takes() { return !(kSanitized || GetParam().some) || cases_++ % 7 == 0; }

 private:
  int cases_ = 0;
  std::unique_ptr<Executor> executor_;
};

}  // namespace gemmd::kernels::contract
