#include "server/engine/scheduling/run.h"

#include <numeric>

#include "server/engine/scheduling/split_program.h"
#include "server/engine/scheduling/split_run.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// Bytes from which a transfer goes beside programs: what it takes then is more than what a second
// lane's threads take to wake.
constexpr int64_t kLeastBeside = 1 << 20;

// A stream's programs keep their order, which two lanes do not.
Lane& LaneOf(const RunRequest& run) {
  const bool beside = run.only_transfers && run.chain == nullptr &&
                      run.shared_in_bytes + run.shared_out_bytes >= kLeastBeside;
  return beside ? run.device->transfers() : run.device->lane();
}

// What came with the program, for as long as it is under way.
absl::StatusOr<Charge> TakeInlineBytes(const RunRequest& request) {
  int64_t bytes = request.message_bytes;
  if (!request.inputs_charged) {
    for (const auto& input : request.inputs) bytes += static_cast<int64_t>(input.size());
  }
  if (bytes == 0) return Charge();
  return request.use->tenant().TakeHostBytes(bytes);
}

// What it brings, until nobody has it any more. Null for nothing.
absl::StatusOr<std::shared_ptr<const Charge>> TakeOutputBytes(Tenant& tenant,
                                                              const RunRequest& request) {
  const std::vector<int64_t>& sizes = request.output_bytes;
  const int64_t bytes = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (bytes == 0) return std::shared_ptr<const Charge>();
  GEMMD_ASSIGN_OR_RETURN(Charge charge, tenant.TakeHostBytes(bytes));
  return std::make_shared<const Charge>(std::move(charge));
}

// What a tenant pays with from a run's acceptance on.
struct RunCharges {
  Charge program, device_time, inline_data;
  std::shared_ptr<const Charge> outputs;  // null without any
};

absl::StatusOr<RunCharges> TakeCharges(const RunRequest& request) {
  Tenant& tenant = request.use->tenant();
  GEMMD_ASSIGN_OR_RETURN(Charge program, tenant.TakeProgram());
  GEMMD_ASSIGN_OR_RETURN(
      Charge time, tenant.TakeDeviceTime(absl::Seconds(request.program->estimated_seconds())));
  GEMMD_ASSIGN_OR_RETURN(Charge inline_data, TakeInlineBytes(request));
  GEMMD_ASSIGN_OR_RETURN(std::shared_ptr<const Charge> outputs, TakeOutputBytes(tenant, request));
  return RunCharges{std::move(program), std::move(time), std::move(inline_data),
                    std::move(outputs)};
}

// Of the request, whose memory, order and claim it takes; `outcome` gets room for what it brings.
// Shared by the lane and by whoever may cancel it.
std::shared_ptr<Job> MakeJob(RunRequest& request, RunCharges charges, Outcome& outcome) {
  auto job = std::make_shared<Job>();
  job->program = std::move(request.program);
  job->bindings.inputs = std::move(request.inputs);
  outcome.charge = std::move(charges.outputs);
  outcome.outputs.reserve(request.output_bytes.size());
  for (const int64_t bytes : request.output_bytes) {
    outcome.outputs.push_back(request.device->backend().AllocateOutput(bytes));
    job->bindings.outputs.push_back(outcome.outputs.back()->span());
  }
  job->bindings.slots = request.buffers->addresses;
  job->buffers = std::move(request.buffers);
  job->peers = std::move(request.peers);
  job->tenant = &request.use->tenant();
  job->session_key = request.use->key();
  job->charge = std::move(charges.program);
  job->time_charge = std::move(charges.device_time);
  job->inline_charge = std::move(charges.inline_data);
  job->priority = request.priority;
  job->deadline = request.deadline;
  job->chain = std::move(request.chain);
  job->chain_position = request.chain_position;
  job->caller_waits = request.caller_waits;
  job->use = std::move(request.use);
  return job;
}

}  // namespace

void RunTicket::Cancel(const absl::Status& status) const {
  if (split != nullptr) return split->Cancel(status);
  if (job != nullptr) lane->Cancel(job, status);
}

RunTicket Run(RunRequest request, OutcomeDone done) {
  // Shared by the job's bindings, the reply and the replay cache.
  auto outcome = std::make_shared<Outcome>();
  outcome->program = request.program;
  outcome->op_names = std::move(request.op_names);
  outcome->device =
      request.split != nullptr ? request.split->DeviceNames() : request.device->name();
  Session& session = *request.use;
  const OpId op_id = std::move(request.op_id);
  if (!op_id.id.empty() && !session.replays().Begin(op_id, done)) return {};
  session.ProgramAccepted();
  auto finish = [op_id, &session,
                 done = std::move(done)](std::shared_ptr<Outcome> outcome) mutable {
    session.ProgramAnswered(outcome->result.used_seconds());
    if (!op_id.id.empty()) {
      session.replays().Finish(op_id, outcome, session.tenant());
    }
    std::move(done)(std::move(outcome), /*replayed=*/false);
  };
  const std::shared_ptr<Chain> chain = request.chain;
  const int64_t chain_position = request.chain_position;
  const auto refuse = [&](absl::Status status) {
    if (chain != nullptr) chain->Fail(chain_position);
    outcome->result.status = std::move(status);
  };

  absl::StatusOr<RunCharges> charges = TakeCharges(request);
  if (!charges.ok()) {
    refuse(charges.status());
    finish(std::move(outcome));
    return {};
  }
  // By its chain, too, which the job takes.
  Lane* const lane = request.split == nullptr ? &LaneOf(request) : nullptr;
  std::shared_ptr<Job> job = MakeJob(request, *std::move(charges), *outcome);
  // A refused job is never answered by the lane, so the answer must not be inside it then.
  auto answer = std::make_shared<decltype(finish)>(std::move(finish));
  job->done = [answer, outcome, plan = std::move(request.plan),
               message = std::move(request.message)](JobResult result) mutable {
    outcome->result = std::move(result);
    (*answer)(std::move(outcome));
  };
  if (request.split != nullptr) {
    for (size_t i = 0; i < request.split->steps().size(); ++i) {
      outcome->op_devices.push_back(request.split->device_of(i).name());
    }
    auto split = std::make_shared<SplitRun>(std::move(request.split), std::move(job));
    split->Start();
    return {.split = std::move(split)};
  }
  if (absl::Status refused = lane->Submit(job); !refused.ok()) {
    refuse(std::move(refused));
    (*answer)(std::move(outcome));
    return {};
  }
  return {.job = std::move(job), .lane = lane};
}

}  // namespace gemmd::server
