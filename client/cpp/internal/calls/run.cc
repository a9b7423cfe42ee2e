#include "client/cpp/internal/calls/run.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/calls/plan_state.h"
#include "client/cpp/internal/calls/program.h"
#include "client/cpp/internal/calls/shared_run.h"
#include "client/cpp/internal/connect/session_core.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

using Encoder = absl::FunctionRef<Program(const InlineMemory::Block&)>;

// A run of `ops` with its data in a block, which `encode` names. `inputs`: WriteInputs'.
absl::StatusOr<SharedRun> Share(const SessionCore& session, const OpList& ops,
                                absl::Span<const absl::string_view> inputs,
                                const ExecuteOptions& options, Encoder encode) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t bytes, BlockBytes(ops, options));
  GEMMD_ASSIGN_OR_RETURN(auto block, session.inline_memory().Take(bytes, options.call));
  WriteInputs(ops, inputs, *block);
  SharedRun run = {.block = block, .program = encode(*block)};
  run.program.elsewhere = OutputsIn(ops, block);
  return run;
}

absl::StatusOr<SharedRun> Share(const SessionCore& session, const OpList& ops,
                                const ExecuteOptions& options) {
  return Share(session, ops, /*inputs=*/{}, options, [&](const InlineMemory::Block& block) {
    return ExecuteProgram(session, MovedInto(ops, block), options);
  });
}

// That a run's inputs are what the plan's Writes take; the server says it better.
absl::Status CheckInputs(const OpList& ops, const PlanArgs& args) {
  size_t writes = 0;
  for (const OpList::Inlined& op : ops.inlined()) {
    if (!op.is_write) continue;
    if (writes < args.inputs.size() &&
        args.inputs[writes].size() != static_cast<size_t>(op.data_bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("inputs[", writes, "] has ",
                                                     args.inputs[writes].size(),
                                                     " bytes, the Write takes ", op.data_bytes));
    }
    ++writes;
  }
  if (args.inputs.empty() && writes > 0) {
    return absl::FailedPreconditionError("a run on the plan's own inputs has none to share");
  }
  if (args.inputs.size() == writes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the run has ", args.inputs.size(), " inputs, the plan ", writes, " Writes"));
}

absl::StatusOr<SharedRun> Share(const Plan::State& plan, const PlanArgs& args,
                                const ExecuteOptions& options) {
  GEMMD_RETURN_IF_ERROR(CheckInputs(*plan.ops, args));
  const SessionCore& session = *plan.session;
  return Share(session, *plan.ops, args.inputs, options, [&](const InlineMemory::Block& block) {
    return RunPlanProgram(session, plan.id, {.rebind = args.rebind}, options,
                          PlacesIn(*plan.ops, block));
  });
}

bool MayShare(const Plan::State& plan, const ExecuteOptions& options) {
  return plan.ops != nullptr && MayShare(*plan.ops, options);
}

}  // namespace

absl::StatusOr<Result> RunOps(const SessionCore& session, const OpList& ops,
                              const ExecuteOptions& options) {
  GEMMD_RETURN_IF_ERROR(session.client().Usable(options.call));
  const auto in_messages = [&] { return ExecuteProgram(session, ops, options); };
  if (!MayShare(ops, options)) return Run(session, in_messages(), options.call);
  return RunEither(session, Share(session, ops, options), in_messages, options);
}

void RunOpsAsync(std::shared_ptr<SessionCore> session, const OpList& ops,
                 const ExecuteOptions& options, ExecuteCallback done) {
  if (absl::Status usable = session->client().Usable(options.call); !usable.ok())
    return done(usable);
  if (!MayShare(ops, options)) {
    return RunAsync(session, ExecuteProgram(*session, ops, options), options.call, std::move(done));
  }
  // The session outlives its runs.
  const auto in_messages = [&core = *session, ops, options] {
    return ExecuteProgram(core, ops, options);
  };
  RunEitherAsync(session, Share(*session, ops, options), in_messages, options, std::move(done));
}

absl::StatusOr<Result> RunPlan(const Plan::State& plan, const PlanArgs& args,
                               const ExecuteOptions& options) {
  const SessionCore& session = *plan.session;
  GEMMD_RETURN_IF_ERROR(session.client().Usable(options.call));
  const auto in_messages = [&] { return RunPlanProgram(session, plan.id, args, options); };
  if (!MayShare(plan, options)) return Run(session, in_messages(), options.call);
  return RunEither(session, Share(plan, args, options), in_messages, options);
}

void RunPlanAsync(const Plan::State& plan, const PlanArgs& args, const ExecuteOptions& options,
                  ExecuteCallback done) {
  if (absl::Status usable = plan.session->client().Usable(options.call); !usable.ok())
    return done(usable);
  const auto encode = [&] { return RunPlanProgram(*plan.session, plan.id, args, options); };
  if (!MayShare(plan, options)) {
    return RunAsync(plan.session, encode(), options.call, std::move(done));
  }
  absl::StatusOr<SharedRun> shared = Share(plan, args, options);
  std::function<Program()> in_messages;
  if (shared.ok()) {
    // Where it is refused the caller's inputs may be gone, but the block has them.
    in_messages = [&session = *plan.session, id = plan.id, rebind = args.rebind, options,
                   ops = plan.ops, block = shared->block] {
      const PlanArgs kept = {.rebind = rebind, .inputs = InputsIn(*ops, *block)};
      return RunPlanProgram(session, id, kept, options);
    };
  } else {
    in_messages = [program = encode()] { return program; };
  }
  RunEitherAsync(plan.session, std::move(shared), std::move(in_messages), options, std::move(done));
}

}  // namespace gemmd::client
