#include "bench/load/workload.h"

#include <mutex>
#include <optional>
#include <vector>

#include "bench/load/inline_matmul.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {
namespace {

// A worker's session and what it has on the server. Destroyed in the reverse order: the session
// goes last.
struct Seat {
  client::Session session;
  ResidentMatmul matmul;
  InlineMatmul inlined;
  client::Plan plan;
  client::PlanArgs args;  // the data of `inlined`
  client::Buffer buffer;
};

absl::StatusOr<std::unique_ptr<Seat>> OpenSeat(client::Client& client, const WorkloadSpec& spec) {
  auto seat = std::make_unique<Seat>();
  absl::StatusOr<client::Session> session =
      client.OpenSession({.label = "gemmd_bench", .device = spec.device});
  if (!session.ok()) return session.status();
  seat->session = *std::move(session);
  return seat;
}

class DeviceTime {
 public:
  void Add(const client::Result& result) {
    std::lock_guard lock(mutex_);
    seconds_ += result.report().device_seconds();
    ++count_;
  }
  double mean() const { return count_ == 0 ? 0 : seconds_ / static_cast<double>(count_); }

 private:
  std::mutex mutex_;
  double seconds_ = 0;
  int64_t count_ = 0;
};

class MatmulWorkload : public Workload {
 public:
  enum class Mode { kExecute, kInline, kQueue, kPlan, kPlanInline };

  static absl::StatusOr<std::unique_ptr<Workload>> Make(client::Client& client,
                                                        const WorkloadSpec& spec, Mode mode) {
    auto workload = std::make_unique<MatmulWorkload>();
    workload->mode_ = mode;
    workload->route_ = spec.route;
    const int seats = mode == Mode::kQueue ? 1 : spec.workers;
    for (int i = 0; i < seats; ++i) {
      absl::StatusOr<std::unique_ptr<Seat>> opened = OpenSeat(client, spec);
      if (!opened.ok()) return opened.status();
      Seat& seat = **opened;
      absl::StatusOr<ResidentMatmul> matmul = MakeResident(seat.session, spec.matmul);
      if (!matmul.ok()) return matmul.status();
      seat.matmul = *std::move(matmul);
      if (mode == Mode::kInline || mode == Mode::kPlanInline) {
        absl::StatusOr<InlineMatmul> inlined = MakeInline(seat.matmul);
        if (!inlined.ok()) return inlined.status();
        seat.inlined = *std::move(inlined);
      }
      if (mode == Mode::kPlan || mode == Mode::kPlanInline) {
        const client::OpList& ops = mode == Mode::kPlan ? seat.matmul.ops : seat.inlined.ops;
        absl::StatusOr<client::Plan> plan = seat.session.CreatePlan(ops, {.label = "gemmd_bench"});
        if (!plan.ok()) return plan.status();
        seat.plan = *std::move(plan);
        seat.args.inputs.assign(seat.inlined.inputs.begin(), seat.inlined.inputs.end());
      }
      workload->seats_.push_back(*std::move(opened));
    }
    if (mode == Mode::kQueue) {
      absl::StatusOr<client::Queue> queue = workload->seats_[0]->session.OpenQueue();
      if (!queue.ok()) return queue.status();
      workload->queue_ = *std::move(queue);
    }
    return workload;
  }

  absl::Status Request(int worker) override {
    absl::StatusOr<client::Result> result = Run(worker);
    if (!result.ok()) return result.status();
    if (result->outputs() > 0) result->output(0);  // in one piece, as its caller wants it
    device_time_.Add(*result);
    return absl::OkStatus();
  }

  double flops() const override { return seats_[0]->matmul.flops; }
  double mean_device_seconds() const override { return device_time_.mean(); }
  int64_t message_bytes() const override {
    return Workload::message_bytes() + seats_[0]->inlined.bytes_in;
  }
  int64_t reply_bytes() const override {
    return Workload::reply_bytes() + seats_[0]->inlined.bytes_out;
  }

 private:
  absl::StatusOr<client::Result> Run(int worker) {
    switch (mode_) {
      case Mode::kExecute:
        return seats_[worker]->session.Execute(seats_[worker]->matmul.ops);
      case Mode::kInline:
        return seats_[worker]->session.Execute(seats_[worker]->inlined.ops, {.route = route_});
      case Mode::kPlan:
      case Mode::kPlanInline:
        return seats_[worker]->plan.Run(seats_[worker]->args, {.route = route_});
      case Mode::kQueue:
        break;
    }
    absl::StatusOr<client::Ticket> ticket = queue_.Submit(seats_[0]->matmul.ops);
    if (!ticket.ok()) return ticket.status();
    return ticket->Wait();
  }

  Mode mode_ = Mode::kExecute;
  client::Route route_ = client::Route::kAuto;
  std::vector<std::unique_ptr<Seat>> seats_;
  client::Queue queue_;  // of the first seat's session; goes before it
  DeviceTime device_time_;
};

// Each worker between memory and a buffer of its own.
class TransferWorkload : public Workload {
 public:
  static absl::StatusOr<std::unique_ptr<Workload>> Make(client::Client& client,
                                                        const WorkloadSpec& spec) {
    auto workload = std::make_unique<TransferWorkload>();
    workload->up_ = spec.mode == "upload";
    workload->data_.resize(spec.workers, std::string(spec.transfer_bytes, 'x'));
    workload->route_ = spec.route;
    for (int i = 0; i < spec.workers; ++i) {
      absl::StatusOr<std::unique_ptr<Seat>> opened = OpenSeat(client, spec);
      if (!opened.ok()) return opened.status();
      absl::StatusOr<client::Buffer> buffer =
          (*opened)->session.CreateBuffer({.size_bytes = spec.transfer_bytes});
      if (!buffer.ok()) return buffer.status();
      (*opened)->buffer = *std::move(buffer);
      workload->seats_.push_back(*std::move(opened));
    }
    return workload;
  }

  absl::Status Request(int worker) override {
    client::TransferOptions options;
    options.route = route_;
    client::Buffer& buffer = seats_[worker]->buffer;
    std::string& data = data_[worker];
    return up_ ? buffer.Upload(data, 0, options).status()
               : buffer.Download(absl::MakeSpan(data), 0, options).status();
  }

  int64_t bytes() const override { return static_cast<int64_t>(data_[0].size()); }

 private:
  bool up_ = true;
  std::vector<std::string> data_;
  client::Route route_ = client::Route::kAuto;
  std::vector<std::unique_ptr<Seat>> seats_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> MakeWorkload(client::Client& client,
                                                       const WorkloadSpec& spec) {
  if (spec.mode == "upload" || spec.mode == "download") return TransferWorkload::Make(client, spec);
  if (spec.mode == "inline")
    return MatmulWorkload::Make(client, spec, MatmulWorkload::Mode::kInline);
  if (spec.mode == "queue") return MatmulWorkload::Make(client, spec, MatmulWorkload::Mode::kQueue);
  if (spec.mode == "plan") return MatmulWorkload::Make(client, spec, MatmulWorkload::Mode::kPlan);
  if (spec.mode == "plan-inline")
    return MatmulWorkload::Make(client, spec, MatmulWorkload::Mode::kPlanInline);
  return MatmulWorkload::Make(client, spec, MatmulWorkload::Mode::kExecute);
}

}  // namespace gemmd::bench
