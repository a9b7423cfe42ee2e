#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/client/cpp/fake_reason.h"
#include "tests/client/cpp/fake_state.h"

namespace gemmd::client {
namespace {

// One Queue stream: a thread reads batches and runs them, another sends their completions.
class Stream {
 public:
  Stream(FakeState& state, grpc::ServerContext* context,
         grpc::ServerReaderWriter<v1::QueueResponse, v1::QueueRequest>* stream)
      : state_(state), context_(context), stream_(stream) {}

  grpc::Status Serve() {
    v1::QueueRequest request;
    {
      absl::MutexLock lock(&state_.mu);
      const std::optional<Failure> failure = state_.Begin("Queue", context_);
      if (failure) return ToGrpc(failure->status, context_);
    }
    if (!stream_->Read(&request) || !request.has_open()) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the first message opens");
    }
    {
      absl::MutexLock lock(&state_.mu);
      state_.calls["deterministic"] += request.open().deterministic();
    }
    v1::QueueResponse opened;
    opened.mutable_opened()->set_window_batches(state_.options.window_batches);
    opened.mutable_opened()->set_window_bytes(state_.options.window_bytes);
    opened.mutable_opened()->set_max_batches_per_message(state_.options.batches_per_message);
    opened.mutable_opened()->set_device("cpu:0");
    stream_->Write(opened);
    std::thread sender([this] { SendCompletions(); });
    bool cut = false;
    while (!cut && stream_->Read(&request)) {
      if (request.has_batch()) cut = !Take(request.batch());
      for (const v1::Batch& batch : request.batches().items()) cut = cut || !Take(batch);
      absl::MutexLock lock(&state_.mu);
      state_.queue_messages.push_back(request.has_batch() ? 1 : request.batches().items_size());
    }
    {
      absl::MutexLock lock(&state_.mu);
      over_ = true;
      cut_ = cut;
    }
    sender.join();
    return cut ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed") : grpc::Status::OK;
  }

 private:
  bool Take(const v1::Batch& batch) {
    absl::MutexLock lock(&state_.mu);
    if (batch.sequence() == state_.cut_queue_at) return false;
    v1::Completion& completion = done_.emplace_back();
    completion.set_sequence(batch.sequence());
    state_.most_in_flight = std::max(state_.most_in_flight, static_cast<int>(done_.size()));
    state_.batches_held = static_cast<int>(done_.size());
    absl::Status status;
    if (batch.resume()) failed_ = false;
    const auto failure = state_.batch_failures.find(batch.sequence());
    if (failed_) {
      status = Signed(absl::AbortedError("an earlier batch failed"), "EARLIER_BATCH_FAILED");
    } else if (failure != state_.batch_failures.end()) {
      status = failure->second;
    } else {
      v1::ExecuteResponse response;
      status = batch.has_plan() ? state_.RunPlan(batch.plan(), &response)
                                : state_.Run(batch.ops(), &response);
      completion.mutable_outputs()->Swap(response.mutable_outputs());
      completion.mutable_report()->set_device("cpu:0");
    }
    failed_ = failed_ || !status.ok();
    completion.set_code(static_cast<int>(status.code()));
    completion.set_message(std::string(status.message()));
    completion.set_reason(ReasonOf(status));
    return true;
  }

  void SendCompletions() {
    absl::MutexLock lock(&state_.mu);
    for (;;) {
      if (cut_ || context_->IsCancelled() || state_.stopping) return;
      const auto ready = [this] {
        return !state_.hold_completions && done_.size() >= (state_.misorder ? 2 : 1);
      };
      if (!ready()) {
        if (over_ && done_.empty()) return;
        state_.mu.AwaitWithTimeout(absl::Condition(&state_.stopping), absl::Microseconds(200));
        continue;
      }
      if (std::exchange(state_.misorder, false)) std::swap(done_[0], done_[1]);
      v1::QueueResponse response;
      for (int i = 0; i < state_.completions_per_message && !done_.empty(); ++i) {
        *response.mutable_completions()->add_items() = std::move(done_.front());
        done_.pop_front();
      }
      state_.batches_held = static_cast<int>(done_.size());
      stream_->Write(response);
    }
  }

  FakeState& state_;
  grpc::ServerContext* context_;
  grpc::ServerReaderWriter<v1::QueueResponse, v1::QueueRequest>* stream_;
  std::deque<v1::Completion> done_ ABSL_GUARDED_BY(state_.mu);
  bool failed_ ABSL_GUARDED_BY(state_.mu) = false;
  bool over_ ABSL_GUARDED_BY(state_.mu) = false;
  bool cut_ ABSL_GUARDED_BY(state_.mu) = false;
};

class Compute final : public v1::ComputeService::Service {
 public:
  explicit Compute(FakeState& state) : state_(state) {}

  grpc::Status Execute(grpc::ServerContext* context, const v1::ExecuteRequest* request,
                       v1::ExecuteResponse* response) override {
    return state_.Serve("Execute", context, [&] {
      state_.calls["deterministic"] += request->deterministic();
      return Once(request->op_id(), response, [&] { return state_.Run(request->ops(), response); });
    });
  }

  grpc::Status RunPlan(grpc::ServerContext* context, const v1::RunPlanRequest* request,
                       v1::ExecuteResponse* response) override {
    return state_.Serve("RunPlan", context, [&] {
      return Once(request->op_id(), response,
                  [&] { return state_.RunPlan(request->run(), response); });
    });
  }

  grpc::Status CreatePlan(grpc::ServerContext* context, const v1::CreatePlanRequest* request,
                          v1::Plan* response) override {
    return state_.Serve("CreatePlan", context, [&] {
      state_.calls["deterministic"] += request->deterministic();
      response->set_plan_id(state_.NewId());
      for (int i = 0; i < request->ops_size(); ++i) response->add_steps()->set_kernel("fake");
      state_.plans[response->plan_id()] = *request;
      return absl::OkStatus();
    });
  }

  grpc::Status DeletePlan(grpc::ServerContext* context, const v1::DeletePlanRequest* request,
                          v1::DeletePlanResponse*) override {
    return state_.Serve("DeletePlan", context, [&]() -> absl::Status {
      return state_.plans.erase(request->plan_id()) > 0 ? absl::OkStatus() : Gone("plan");
    });
  }

  grpc::Status Explain(grpc::ServerContext* context, const v1::ExplainRequest* request,
                       v1::ExplainResponse* response) override {
    return state_.Serve("Explain", context, [&] {
      response->set_device(request->device());
      response->add_candidates()->set_kernel("cpu_f32");
      return absl::OkStatus();
    });
  }

  grpc::Status Queue(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::QueueResponse, v1::QueueRequest>* stream) override {
    return Stream(state_, context, stream).Serve();
  }

 private:
  template <typename Work>
  absl::Status Once(const std::string& op_id, v1::ExecuteResponse* response, Work work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu) {
    const auto found = state_.replies.find(op_id);
    if (!op_id.empty() && found != state_.replies.end()) {
      *response = found->second;
      response->set_replayed(true);
      return absl::OkStatus();
    }
    const absl::Status status = work();
    if (status.ok() && !op_id.empty()) state_.replies[op_id] = *response;
    return status;
  }

  FakeState& state_;
};

}  // namespace

absl::Status FakeState::Run(const google::protobuf::RepeatedPtrField<v1::Op>& ops,
                            v1::ExecuteResponse* response) {
  ++programs;
  const auto size = [](const v1::Tensor& tensor) {
    size_t bytes = tensor.dtype() == v1::DTYPE_I8 ? 1 : 4;  // the tests use I8 and F32
    for (int64_t extent : tensor.shape()) bytes *= static_cast<size_t>(extent);
    return bytes;
  };
  const auto at = [&](const v1::Tensor& tensor) ABSL_NO_THREAD_SAFETY_ANALYSIS -> char* {
    FakeBuffer* buffer = Find(tensor.buffer_id());
    return buffer == nullptr ? nullptr : buffer->data() + tensor.offset_bytes();
  };
  const auto shared = [&](const v1::SharedBytes& place) {
    v1::Tensor tensor;
    tensor.set_buffer_id(place.buffer_id());
    tensor.set_offset_bytes(place.offset_bytes());
    return at(tensor);
  };
  for (const v1::Op& op : ops) {
    response->mutable_report()->add_ops()->set_kernel("fake");
    if (op.has_write()) {
      char* to = at(op.write().dst());
      const char* from =
          op.write().has_from() ? shared(op.write().from()) : op.write().data().data();
      if (to == nullptr || from == nullptr) return Gone("buffer");
      std::memcpy(to, from, size(op.write().dst()));
    } else if (op.has_copy()) {
      char* from = at(op.copy().src());
      char* to = at(op.copy().dst());
      if (from == nullptr || to == nullptr) return Gone("buffer");
      std::memcpy(to, from, size(op.copy().src()));
    } else if (op.has_read()) {
      char* from = at(op.read().src());
      if (from == nullptr) return Gone("buffer");
      if (!op.read().has_to()) {
        response->add_outputs(from, size(op.read().src()));
        continue;
      }
      char* to = shared(op.read().to());
      if (to == nullptr) return Gone("buffer");
      std::memcpy(to, from, size(op.read().src()));
    }
  }
  return absl::OkStatus();
}

absl::Status FakeState::RunPlan(const v1::PlanRun& run, v1::ExecuteResponse* response) {
  const auto found = plans.find(run.plan_id());
  if (found == plans.end()) return Gone("plan");
  v1::CreatePlanRequest plan = found->second;
  int input = 0;
  int place = 0;
  for (v1::Op& op : *plan.mutable_ops()) {
    if (run.inline_at_size() > 0 && op.has_write()) {
      *op.mutable_write()->mutable_from() = run.inline_at(place++);
    } else if (run.inline_at_size() > 0 && op.has_read()) {
      *op.mutable_read()->mutable_to() = run.inline_at(place++);
    }
    if (op.has_write() && run.inputs_size() > 0) {
      op.mutable_write()->set_data(run.inputs(input++));
    }
    for (const v1::Rebinding& rebinding : run.rebind()) {
      v1::Tensor* tensor = op.has_write()  ? op.mutable_write()->mutable_dst()
                           : op.has_read() ? op.mutable_read()->mutable_src()
                                           : nullptr;
      if (tensor != nullptr && tensor->buffer_id() == rebinding.from_buffer_id()) {
        tensor->set_buffer_id(rebinding.to_buffer_id());
      }
    }
  }
  return Run(plan.ops(), response);
}

std::unique_ptr<grpc::Service> MakeFakeCompute(FakeState& state) {
  return std::make_unique<Compute>(state);
}

}  // namespace gemmd::client
