#include "server/engine/observe/lane_metrics.h"

#include <numeric>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "server/engine/observe/time_counts.h"

namespace gemmd::server {
namespace {

// In LaunchWay's order.
constexpr std::array<const char*, kernels::kLaunchWays> kWays = {"ops", "graph", "capture_failed",
                                                                 "chained"};

// What a program's steps of one op, kernel, dtype and reason come to.
struct KindSum {
  const kernels::Program::Step* first;
  int64_t steps = 0;
  double flops = 0;
  TimeCounts times;
};

// Names are compared by their addresses: they belong to the backend and never move.
bool SameKind(const kernels::Program::Step& a, const kernels::Program::Step& b) {
  return a.choice.kernel.data() == b.choice.kernel.data() && a.op.data() == b.op.data() &&
         a.dtype == b.dtype && a.choice.reason == b.choice.reason;
}

KindSum& SumOf(absl::InlinedVector<KindSum, 8>& kinds, const kernels::Program::Step& step) {
  for (KindSum& kind : kinds) {
    if (SameKind(*kind.first, step)) return kind;
  }
  return kinds.emplace_back(KindSum{.first = &step});
}

}  // namespace

LaneMetrics::LaneMetrics(Metrics& metrics, std::string device, LaneKind kind)
    : metrics_(metrics),
      device_(std::move(device)),
      programs_(metrics.Programs()),
      launch_seconds_(metrics.LaunchSeconds(device_)),
      busy_seconds_(kind == LaneKind::kPrograms ? metrics.DeviceBusySeconds(device_)
                                                : metrics.DeviceTransferSeconds(device_)) {
  for (int i = 0; i < kPriorities; ++i) {
    const std::string_view priority = Name(static_cast<Priority>(i));
    queue_seconds_[i] = &metrics.QueueSeconds(device_, priority);
    if (kind == LaneKind::kPrograms) depth_[i] = &metrics.QueueDepth(device_, priority);
  }
  if (kind == LaneKind::kPrograms) {
    queued_device_seconds_ = &metrics.QueuedDeviceSeconds(device_);
  } else {
    queued_transfers_ = &metrics.QueuedTransfers(device_);
  }
  for (const bool armed : {false, true}) {
    const char* const path = armed ? "armed" : "grpc";
    runs_[armed] = {&metrics.Runs(device_, path, "failed"), &metrics.Runs(device_, path, "ok")};
  }
  for (size_t i = 0; i < kWays.size(); ++i) launches_[i] = &metrics.Launches(device_, kWays[i]);
}

void LaneMetrics::Accepted() { programs_.Increment(); }
void LaneMetrics::Answered() { programs_.Decrement(); }
void LaneMetrics::Launched(double seconds) { launch_seconds_.Observe(seconds); }

const LaneMetrics::StepCounters& LaneMetrics::Of(const kernels::Program::Step& step) {
  auto [it, fresh] = steps_.try_emplace(std::make_tuple(step.op.data(), step.choice.kernel.data(),
                                                        static_cast<int>(step.dtype),
                                                        static_cast<int>(step.choice.reason)));
  if (fresh) {
    const auto dtype = kernels::Name(step.dtype);
    it->second = {.ok = &metrics_.Ops(device_, step.op, dtype, step.choice.kernel, "ok"),
                  .failed = &metrics_.Ops(device_, step.op, dtype, step.choice.kernel, "failed"),
                  .flops = &metrics_.Flops(device_, dtype),
                  .seconds = &metrics_.DeviceSeconds(device_, step.choice.kernel)};
    if (step.choice.reason == kernels::ChoiceReason::kFallback) {
      it->second.fallback = &metrics_.KernelFallback("no_better_kernel");
    }
  }
  return it->second;
}

void LaneMetrics::Completed(const Job& job, const JobResult& result) {
  queue_seconds_[static_cast<int>(job.priority)]->Observe(result.queue_seconds);
  busy_seconds_.Increment(result.launch.device_seconds);
  launches_[static_cast<size_t>(result.launch.way)]->Increment();
  runs_[job.armed][result.status.ok()]->Increment();
  const auto steps = job.program->steps();
  absl::MutexLock lock(&mutex_);
  auto& tenant = tenants_[job.tenant];
  if (tenant == nullptr) tenant = &metrics_.TenantDeviceSeconds(job.tenant->name());
  tenant->Increment(result.launch.device_seconds);
  const bool ok = result.status.ok();
  const absl::Span<const float> seconds = ok ? result.launch.op_seconds : absl::Span<const float>();
  // Hundreds of steps are mostly a handful of kinds, in turns.
  absl::InlinedVector<KindSum, 8> kinds;
  for (size_t i = 0; i < steps.size(); ++i) {
    KindSum& kind = SumOf(kinds, steps[i]);
    ++kind.steps;
    kind.flops += steps[i].flops;
    if (i < seconds.size()) kind.times.Add(seconds[i]);
  }
  for (const KindSum& kind : kinds) {
    const StepCounters& counters = Of(*kind.first);
    (ok ? counters.ok : counters.failed)->Increment(kind.steps);
    if (counters.fallback != nullptr) counters.fallback->Increment(kind.steps);
    if (ok && kind.flops > 0) counters.flops->Increment(kind.flops);
    kind.times.AddTo(*counters.seconds);
  }
}

void LaneMetrics::SetQueue(const std::array<int64_t, kPriorities>& depth, double queued_seconds) {
  if (queued_transfers_ != nullptr) {
    const auto all = std::accumulate(depth.begin(), depth.end(), int64_t{0});
    queued_transfers_->Set(static_cast<double>(all));
    return;
  }
  for (int i = 0; i < kPriorities; ++i) depth_[i]->Set(static_cast<double>(depth[i]));
  queued_device_seconds_->Set(queued_seconds);
}

}  // namespace gemmd::server
