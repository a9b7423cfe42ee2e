#include "client/cpp/internal/connect/background.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/connect/forked.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {
namespace {

constexpr size_t kMostBuffers = 1000;  // of one DeleteBuffers
constexpr absl::Duration kPatience = absl::Seconds(30);

}  // namespace

struct Reaper::Job {
  std::vector<Handle> ids;       // buffers of a batch; empty for a plan
  std::optional<Single> single;  // of ids[0], if the batch is one that was split
  Handle plan;                   // without ids
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
  if (Forked()) return;
  absl::Status started;
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    list.push_back(id);
    if (thread_.joinable()) return;
    try {
      thread_ = std::thread([this] { Work(); });
    } catch (const std::system_error& error) {
      // The list goes with the next drop's thread, or with the session.
      started = absl::ResourceExhaustedError(absl::StrCat("no thread to be had: ", error.what()));
    }
  }
  if (!started.ok()) errors_->Add("delete what was dropped", started);
}

bool Reaper::Waiting() const { return !buffers_.empty() || !singles_.empty() || !plans_.empty(); }

bool Reaper::Idle() const {
  absl::MutexLock lock(&mu_);
  return Done();
}

void Reaper::Flush() {
  absl::MutexLock lock(&mu_);
  const auto done = [this]()
                        ABSL_SHARED_LOCKS_REQUIRED(mu_) { return Done() || !thread_.joinable(); };
  mu_.Await(absl::Condition(&done));
}

void Reaper::Stop() {
  std::thread ended;
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    buffers_.clear();
    plans_.clear();
    singles_.clear();
    ended = std::move(thread_);
  }
  if (ended.joinable()) ended.join();
}

void Reaper::Work() {
  const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return Waiting() || stopped_; };
  while (true) {
    Job job;
    {
      absl::MutexLock lock(&mu_);
      busy_ = false;
      mu_.Await(absl::Condition(&wanted));
      if (stopped_) return;
      Take(job);
      busy_ = true;
    }
    if (absl::Status status = Send(job); !status.ok()) Failed(job, status);
  }
}

void Reaper::Take(Job& job) {
  if (!buffers_.empty()) {
    const size_t count = std::min(buffers_.size(), kMostBuffers);
    job.ids.assign(buffers_.end() - count, buffers_.end());
    buffers_.resize(buffers_.size() - count);
  } else if (!singles_.empty()) {
    job.single = singles_.front();
    job.ids.push_back(singles_.front().id);
    singles_.pop_front();
  } else {
    job.plan = plans_.back();
    plans_.pop_back();
  }
}

absl::Status Reaper::Send(const Job& job) {
  const auto send = [this](auto request, auto response) {
    request.set_session_id(std::string(session_.bytes()));
    grpc::ClientContext context;
    Prepare(*client_, context, CallOptions(), absl::Now() + kPatience);
    return FromGrpc(SendOnce(*connection_.channel(), context, request, response), context);
  };
  if (job.ids.empty()) {
    v1::DeletePlanRequest plan;
    plan.set_plan_id(std::string(job.plan.bytes()));
    return send(plan, v1::DeletePlanResponse());
  }
  v1::DeleteBuffersRequest buffers;
  for (const Handle& id : job.ids) buffers.add_buffer_ids(std::string(id.bytes()));
  return send(buffers, v1::DeleteBuffersResponse());
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
