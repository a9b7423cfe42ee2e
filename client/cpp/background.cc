#include "client/cpp/background.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/call.h"
#include "client/cpp/grpc_status.h"

namespace gemmd::client {
namespace {

constexpr size_t kMostBuffers = 1000;  // of one DeleteBuffers
constexpr absl::Duration kPatience = absl::Seconds(30);

}  // namespace

struct Reaper::Job {
  grpc::ClientContext context;
  v1::DeleteBuffersRequest buffers;
  v1::DeleteBuffersResponse buffers_response;
  v1::DeletePlanRequest plan;
  v1::DeletePlanResponse plan_response;
  std::vector<Handle> ids;       // buffers of a batch; empty for a plan
  std::optional<Single> single;  // of ids[0], if the batch is one that was split
};

Reaper::Reaper(std::shared_ptr<ClientCore> client, Connection& connection, const Handle& session,
               std::shared_ptr<BackgroundErrors> errors)
    : client_(std::move(client)),
      connection_(connection),
      session_(session),
      errors_(std::move(errors)) {}

void Reaper::DropBuffer(const Handle& id) { Drop(buffers_, id); }

void Reaper::DropPlan(const Handle& id) { Drop(plans_, id); }

void Reaper::Drop(std::vector<Handle>& list, const Handle& id) {
  std::shared_ptr<Job> job;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    list.push_back(id);
    if (!busy_) job = Take();
  }
  if (job) Send(std::move(job));
}

bool Reaper::Idle() const {
  absl::MutexLock lock(&mu_);
  return !busy_;
}

void Reaper::Flush() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](bool* busy) { return !*busy; }, &busy_));
}

void Reaper::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    buffers_.clear();
    plans_.clear();
    singles_.clear();
  }
  Flush();
}

std::shared_ptr<Reaper::Job> Reaper::Take() {
  auto job = std::make_shared<Job>();
  if (!buffers_.empty()) {
    const size_t count = std::min(buffers_.size(), kMostBuffers);
    job->ids.assign(buffers_.end() - count, buffers_.end());
    buffers_.resize(buffers_.size() - count);
  } else if (!singles_.empty()) {
    job->single = singles_.front();
    job->ids.push_back(singles_.front().id);
    singles_.pop_front();
  } else if (!plans_.empty()) {
    job->plan.set_session_id(std::string(session_.bytes()));
    job->plan.set_plan_id(std::string(plans_.back().bytes()));
    plans_.pop_back();
  } else {
    busy_ = false;
    return nullptr;
  }
  busy_ = true;
  return job;
}

void Reaper::Send(std::shared_ptr<Job> job) {
  Prepare(*client_, job->context, CallOptions(), absl::Now() + kPatience);
  Job& call = *job;
  auto done = [self = shared_from_this(), job = std::move(job)](const grpc::Status& status) {
    self->Done(*job, FromGrpc(status, job->context));
  };
  if (call.ids.empty()) {
    connection_.compute.async()->DeletePlan(&call.context, &call.plan, &call.plan_response,
                                            std::move(done));
    return;
  }
  call.buffers.set_session_id(std::string(session_.bytes()));
  for (const Handle& id : call.ids) call.buffers.add_buffer_ids(std::string(id.bytes()));
  connection_.buffers.async()->DeleteBuffers(&call.context, &call.buffers, &call.buffers_response,
                                             std::move(done));
}

void Reaper::Done(const Job& job, const absl::Status& status) {
  if (!status.ok()) Failed(job, status);
  std::shared_ptr<Job> next;
  {
    absl::MutexLock lock(&mu_);
    next = Take();
  }
  if (next) Send(std::move(next));
}

void Reaper::Failed(const Job& job, const absl::Status& status) {
  if (job.ids.empty()) {
    errors_->Add("delete plan", status);
    return;
  }
  const bool torn = BreakOf(status) != Break::kNone;
  const bool unknown = status.code() == absl::StatusCode::kNotFound;
  if (unknown && job.single && job.single->maybe_gone) return;
  const int tries = job.single ? job.single->tries : 0;
  const bool again = torn ? tries + 1 < client_->options().retry.max_attempts
                          // One unknown handle keeps the whole batch from being deleted.
                          : unknown && job.ids.size() > 1;
  if (again) {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    for (const Handle& id : job.ids) singles_.push_back({id, torn, torn ? tries + 1 : tries});
    return;
  }
  errors_->Add(absl::StrCat("delete ", job.ids.size(), " buffers"), status,
               static_cast<int64_t>(job.ids.size()));
}

}  // namespace gemmd::client
