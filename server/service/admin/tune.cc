#include "server/service/admin/tune.h"

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/gauge.h"
#include "server/engine/reason.h"
#include "server/engine/tuning/device_tuner.h"
#include "server/service/admin/tune_shapes.h"
#include "server/service/wire/convert.h"

namespace gemmd::server {
namespace {

constexpr int kUsualKernels = 8;
constexpr int kFewestKernels = 2;
constexpr int kMostKernels = 32;

void Fill(const DeviceTuner::Result& result, v1::TunedShape& proto) {
  const kernels::TunedShape& tuned = result.tuned;
  proto.mutable_shape()->set_m(tuned.shape.m);
  proto.mutable_shape()->set_n(tuned.shape.n);
  proto.mutable_shape()->set_k(tuned.shape.k);
  proto.mutable_shape()->set_output_dtype(ToProto(tuned.shape.out));
  if (!result.status.ok()) {
    proto.set_skipped(std::string(result.status.message()));
    return;
  }
  proto.set_kernel_before(tuned.before);
  proto.set_seconds_before(tuned.seconds_before);
  proto.set_reason_before(ToProto(tuned.reason_before));
  proto.set_kernel(tuned.times[0].kernel);
  proto.set_seconds(tuned.times[0].seconds);
  proto.set_kernels(static_cast<int>(tuned.times.size()));
}

// Kept alive by gRPC (until OnDone), the registry, and the order that it gave. One write at a time;
// a shape's message waits for the one before it, and there are at most as many as shapes.
class TuneStream final : public grpc::ServerWriteReactor<v1::TuneProgress>, public DrainableStream {
 public:
  static TuneStream* Start(Method& method, grpc::CallbackServerContext* context,
                           const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cancel(absl::CancelledError("the caller cancelled the Tune")); }
  void OnDone() override;
  void DrainNotice(absl::Time) override {}
  void DrainNow() override {
    Cancel(WithReason(absl::UnavailableError("the server is draining; go to another"),
                      reason::kDraining));
  }

 private:
  TuneStream(Method& method, grpc::CallbackServerContext* context)
      : call_(method, context, Call::Kind::kStream) {}

  absl::Status Begin(const grpc::ByteBuffer& bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Give(DeviceTuner& tuner, std::vector<kernels::TuneShape> shapes, int kernels)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(const DeviceTuner::Result& result) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes the next message, or finishes.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);

  Call call_;
  std::shared_ptr<TuneStream> self_;
  Charge charge_;

  absl::Mutex mutex_;
  DeviceTuner* tuner_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null until it has taken the order
  uint64_t order_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  v1::TuneProgress last_ ABSL_GUARDED_BY(mutex_);  // without its shape
  std::deque<v1::TuneProgress> messages_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  v1::TuneProgress message_;  // gRPC reads it while writing_
};

TuneStream* TuneStream::Start(Method& method, grpc::CallbackServerContext* context,
                              const grpc::ByteBuffer& request) {
  std::shared_ptr<TuneStream> stream(new TuneStream(method, context));
  stream->self_ = stream;
  method.state().metrics().Streams(method.name()).Increment();
  method.context().streams.Add(stream);
  if (absl::Status begun = stream->Begin(request); !begun.ok()) stream->End(std::move(begun));
  return stream.get();
}

absl::Status TuneStream::Begin(const grpc::ByteBuffer& bytes) {
  v1::TuneRequest request;
  if (absl::Status read = call_.Read(bytes, request); !read.ok()) return read;
  ServerState& state = call_.state();
  if (absl::Status open = state.CheckOpen(); !open.ok()) return open;
  auto charge = call_.tenant().TakeStream();
  if (!charge.ok()) return charge.status();
  charge_ = *std::move(charge);
  auto tuner = state.FindTuner(request.device());
  if (!tuner.ok()) return tuner.status();
  const int kernels = request.kernels() == 0 ? kUsualKernels : request.kernels();
  if (kernels < kFewestKernels || kernels > kMostKernels) {
    return absl::InvalidArgumentError(absl::StrCat("kernels=", kernels, " is not from ",
                                                   kFewestKernels, " to ", kMostKernels,
                                                   "; leave it out for ", kUsualKernels));
  }
  auto shapes = TuneShapesOf(request, state, **tuner);
  if (!shapes.ok()) return shapes.status();
  if (absl::Status ordered = Give(**tuner, *std::move(shapes), kernels); !ordered.ok()) {
    return ordered;
  }
  StartWrite(&message_);
  return absl::OkStatus();
}

// Under the lock: the first shape may be measured before Start returns.
absl::Status TuneStream::Give(DeviceTuner& tuner, std::vector<kernels::TuneShape> shapes,
                              int kernels) {
  absl::MutexLock lock(&mutex_);
  last_.set_device(tuner.device().name());
  last_.set_shapes(static_cast<int>(shapes.size()));
  auto order = tuner.Start({.shapes = std::move(shapes),
                            .kernels = kernels,
                            .measured = [self = self_](const auto& result) { self->Add(result); },
                            .ended = [self = self_](absl::Status s) { self->End(std::move(s)); }});
  if (!order.ok()) return order.status();
  tuner_ = &tuner;
  order_ = *order;
  if (!cancelled_.ok()) tuner_->Cancel(order_, cancelled_);
  message_ = last_;
  writing_ = true;
  return absl::OkStatus();
}

void TuneStream::Cancel(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  cancelled_.Update(why);
  broken_ |= absl::IsCancelled(why);
  if (tuner_ != nullptr && !ended_) tuner_->Cancel(order_, why);
}

void TuneStream::Add(const DeviceTuner::Result& result) {
  {
    absl::MutexLock lock(&mutex_);
    last_.set_done(last_.done() + 1);
    messages_.push_back(last_);
    Fill(result, *messages_.back().mutable_tuned());
  }
  Advance();
}

void TuneStream::End(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
    ended_ = true;
  }
  Advance();
}

void TuneStream::Advance() {
  absl::Status status;
  bool write = false;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    if (broken_) messages_.clear();
    if (!messages_.empty()) {
      message_ = std::move(messages_.front());
      messages_.pop_front();
      write = writing_ = true;
    } else if (ended_) {
      finished_ = true;
      status = status_;
    } else {
      return;
    }
  }
  if (write) {
    StartWrite(&message_);
  } else {
    Finish(call_.Finish(status));
  }
}

void TuneStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    broken_ |= !ok;
  }
  if (!ok) Cancel(absl::CancelledError("the reader went away"));
  Advance();
}

void TuneStream::OnDone() {
  charge_.Release();
  call_.state().metrics().Streams(call_.method().name()).Decrement();
  const std::shared_ptr<TuneStream> self = std::move(self_);
  call_.method().context().streams.Remove(self);
}

}  // namespace

grpc::ServerWriteReactor<v1::TuneProgress>* ServeTune(Method& method,
                                                      grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer& request) {
  return TuneStream::Start(method, context, request);
}

}  // namespace gemmd::server
