#include "client/cpp/run_plan.h"

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/plan_state.h"
#include "client/cpp/program.h"
#include "client/cpp/shared_run.h"

namespace gemmd::client {
namespace {

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

bool MayShare(const Plan::State& plan, const ExecuteOptions& options) {
  return plan.twins != nullptr && MayShare(plan.twins->ops(), options);
}

absl::StatusOr<PlanTwins::Place> PlaceFor(const Plan::State& plan, const ExecuteOptions& options) {
  const SessionCore& session = *plan.session;
  const absl::StatusOr<int64_t> bytes = BlockBytes(plan.twins->ops(), options);
  if (!bytes.ok()) return bytes.status();
  if (auto free = plan.twins->FreePlace(session, *bytes)) return *std::move(free);
  if (absl::Status room = plan.twins->HasRoom(session); !room.ok()) return room;
  auto block = session.inline_memory().Take(*bytes, options.call);
  if (!block.ok()) return block.status();
  const absl::StatusOr<Handle> twin = plan.twins->For(session, **block, options.call);
  if (!twin.ok()) return twin.status();
  return PlanTwins::Place{*std::move(block), *twin};
}

absl::StatusOr<SharedRun> Share(const Plan::State& plan, const PlanArgs& args,
                                const ExecuteOptions& options) {
  const SessionCore& session = *plan.session;
  const OpList& ops = plan.twins->ops();
  if (absl::Status fit = CheckInputs(ops, args); !fit.ok()) return fit;
  absl::StatusOr<PlanTwins::Place> place = PlaceFor(plan, options);
  if (!place.ok()) return place.status();
  WriteInputs(ops, args.inputs, *place->block);
  Program program = RunPlanProgram(session, place->plan, {.rebind = args.rebind}, options);
  program.elsewhere = OutputsIn(ops, place->block);
  return SharedRun{
      .block = std::move(place->block),
      .program = std::move(program),
      .compare =
          [twins = plan.twins](const absl::Status& refusal, const absl::Status& by_grpc) {
            if (by_grpc.ok() && !absl::IsNotFound(refusal)) twins->TurnOff(refusal);
          },
  };
}

}  // namespace

absl::StatusOr<Result> RunPlan(const Plan::State& plan, const PlanArgs& args,
                               const ExecuteOptions& options) {
  const SessionCore& session = *plan.session;
  const auto in_messages = [&] { return RunPlanProgram(session, plan.id, args, options); };
  if (!MayShare(plan, options)) return Run(session, in_messages(), options.call);
  return RunEither(session, Share(plan, args, options), in_messages, options);
}

void RunPlanAsync(const Plan::State& plan, const PlanArgs& args, const ExecuteOptions& options,
                  ExecuteCallback done) {
  const auto encode = [&] { return RunPlanProgram(*plan.session, plan.id, args, options); };
  if (!MayShare(plan, options)) {
    return RunAsync(plan.session, encode(), options.call, std::move(done));
  }
  absl::StatusOr<SharedRun> shared = Share(plan, args, options);
  std::function<Program()> in_messages;
  if (shared.ok()) {
    // Where it is refused the caller's inputs may be gone, but the block has them.
    in_messages = [&session = *plan.session, id = plan.id, rebind = args.rebind, options,
                   twins = plan.twins, block = shared->block] {
      const PlanArgs kept = {.rebind = rebind, .inputs = InputsIn(twins->ops(), *block)};
      return RunPlanProgram(session, id, kept, options);
    };
  } else {
    in_messages = [program = encode()] { return program; };
  }
  RunEitherAsync(plan.session, std::move(shared), std::move(in_messages), options, std::move(done));
}

}  // namespace gemmd::client
