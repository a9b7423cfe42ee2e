// A program that the server keeps compiled: validated and its kernels chosen once, run many times.
//
//   absl::StatusOr<Plan> plan = session.CreatePlan(ops, {.label = "decode"});
//   absl::StatusOr<Result> first = plan->Run();
//   absl::StatusOr<Result> next = plan->Run({.rebind = {{x.id(), x2.id()}}, .inputs = {bytes}});

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/execute.h"
#include "client/cpp/result.h"
#include "client/cpp/types.h"

namespace gemmd::v1 {
class Plan;
}  // namespace gemmd::v1

namespace gemmd::client {

class SessionCore;

struct PlanOptions {
  std::string label = {};
  bool deterministic = false;  // of every run, as ExecuteOptions::deterministic
  CallOptions call = {};
};

// Another buffer in the place of one the plan was made with, for one run. At least as large as the
// plan's views reach, and on the plan's device; in the place of one that only Copy reads and that
// was on another device, on any that the plan's can read.
struct Rebinding {
  Handle from;
  Handle to;
};

// What a run does differently. The defaults are the plan's own.
struct PlanArgs {
  std::vector<Rebinding> rebind = {};
  // One for each Write of the plan, in order and of the same length; or none at all. Must stay
  // valid during the call that takes them.
  std::vector<absl::string_view> inputs = {};
};

// Move-only; the destructor deletes the plan without waiting, as Buffer's does. Thread-safe but for
// moves and destruction. To run it in a Queue: Queue::Submit(plan, args).
class Plan {
 public:
  Plan();  // no plan
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  const Handle& id() const;
  // Device, estimate, and the kernel of each op with the reason; include "compute_service.pb.h".
  const v1::Plan& info() const;

  // Errors as Session::Execute; INVALID_ARGUMENT for args that do not fit.
  absl::StatusOr<Result> Run(const PlanArgs& args = {}, const ExecuteOptions& options = {}) const;
  // `done` runs on the library's one thread for such calls and must not block.
  void RunAsync(const PlanArgs& args, const ExecuteOptions& options, ExecuteCallback done) const;

  absl::Status Delete(const CallOptions& options = {});
  // Keeps the plan on the server when this object goes.
  Handle Release();

  // The session's side; use Session::CreatePlan.
  struct State;
  explicit Plan(std::unique_ptr<State> state);

 private:
  const State& state() const;  // of an empty one where there is none

  std::unique_ptr<State> state_;
};

}  // namespace gemmd::client
