#include "server/service/admin/tune.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/engine/tuning/device_tuner.h"
#include "server/service/admin/tune_shapes.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/message_stream.h"
#include "status/propagate.h"

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

// Kept alive by its order, too. A shape's message waits for the one before it, and there are at
// most as many as shapes.
class TuneStream final : public MessageStream<v1::TuneProgress> {
 public:
  using MessageStream::MessageStream;

  absl::Status Begin(const grpc::ByteBuffer& bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void DrainNotice(absl::Time) override {}
  void DrainNow() override { Cancel(Draining()); }

 private:
  void Broken() override { Cancel(absl::CancelledError("the caller cancelled the Tune")); }
  absl::Status Give(DeviceTuner& tuner, std::vector<kernels::TuneShape> shapes, int kernels)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(const DeviceTuner::Result& result) ABSL_LOCKS_EXCLUDED(mutex_);
  void Ended(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  DeviceTuner* tuner_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null until it has taken the order
  uint64_t order_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  v1::TuneProgress last_ ABSL_GUARDED_BY(mutex_);  // without its shape
};

absl::Status TuneStream::Begin(const grpc::ByteBuffer& bytes) {
  v1::TuneRequest request;
  GEMMD_RETURN_IF_ERROR(Read(bytes, request));
  ServerState& state = call().state();
  GEMMD_RETURN_IF_ERROR(state.CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(auto tuner, state.FindTuner(request.device()));
  const int kernels = request.kernels() == 0 ? kUsualKernels : request.kernels();
  if (kernels < kFewestKernels || kernels > kMostKernels) {
    return absl::InvalidArgumentError(absl::StrCat("kernels=", kernels, " is not from ",
                                                   kFewestKernels, " to ", kMostKernels,
                                                   "; leave it out for ", kUsualKernels));
  }
  GEMMD_ASSIGN_OR_RETURN(auto shapes, TuneShapesOf(request, state, *tuner));
  return Give(*tuner, std::move(shapes), kernels);
}

absl::Status TuneStream::Give(DeviceTuner& tuner, std::vector<kernels::TuneShape> shapes,
                              int kernels) {
  absl::MutexLock lock(&mutex_);
  last_.set_device(tuner.device().name());
  last_.set_shapes(static_cast<int>(shapes.size()));
  // The order keeps the stream.
  const auto self = MessageStream::self();
  auto order = tuner.Start({.shapes = std::move(shapes),
                            .kernels = kernels,
                            .measured = [this, self](const auto& result) { Add(result); },
                            .ended = [this, self](absl::Status s) { Ended(std::move(s)); }});
  if (!order.ok()) return order.status();
  tuner_ = &tuner;
  order_ = *order;
  if (!cancelled_.ok()) tuner_->Cancel(order_, cancelled_);
  Send(last_);  // under the lock, before what the tuner has to say
  return absl::OkStatus();
}

void TuneStream::Cancel(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  cancelled_.Update(why);
  if (tuner_ != nullptr) tuner_->Cancel(order_, why);
}

void TuneStream::Add(const DeviceTuner::Result& result) {
  v1::TuneProgress progress;
  {
    absl::MutexLock lock(&mutex_);
    last_.set_done(last_.done() + 1);
    progress = last_;
  }
  Fill(result, *progress.mutable_tuned());
  Send(std::move(progress));
}

void TuneStream::Ended(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    tuner_ = nullptr;
  }
  End(std::move(status));
}

}  // namespace

grpc::ServerWriteReactor<v1::TuneProgress>* ServeTune(Method& method,
                                                      grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer& request) {
  return TuneStream::Start<TuneStream>(method, context, request);
}

}  // namespace gemmd::server
