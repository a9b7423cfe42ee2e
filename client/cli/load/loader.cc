#include "client/cli/load/loader.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cli/args/printable.h"
#include "client/cli/quantize.h"
#include "client/cli/transfers.h"
#include "client/cpp/ops.h"
#include "client/cpp/scales.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

using client::Buffer;
using client::DType;
using Form = Weight::Form;

absl::string_view Chars(absl::Span<const std::byte> bytes) { return client::AsBytes(bytes); }

absl::Status Collision(const Weight& weight, absl::string_view hash) {
  return absl::AlreadyExistsError(absl::StrCat(
      weight.name, " is published with other content (", hash.empty() ? "without a hash" : "hash ",
      absl::BytesToHexString(hash.substr(0, 4)),
      "); load as a new version ('--prefix m@2'), or unpublish it first"));
}

class Loader {
 public:
  Loader(client::Client& client, client::Session& session, const std::vector<Weight>& weights,
         const LoadOptions& options)
      : client_(client), session_(session), weights_(weights), options_(options) {
    for (const Weight& weight : weights) total_bytes_ += weight.source_bytes();
  }

  absl::Status Run() {
    GEMMD_RETURN_IF_ERROR(AskWhatIsThere());
    // In another order each time: several loaders of the same share the work, and seldom meet.
    for (const Weight& weight : weights_) order_.push_back(&weight);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(std::random_device()()));
    const int jobs = std::clamp<int>(options_.jobs, 1, static_cast<int>(weights_.size()));
    std::vector<std::thread> threads;
    for (int i = 1; i < jobs; ++i) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    absl::MutexLock lock(&mutex_);
    return status_;
  }

  LoadReport TakeReport() {
    absl::MutexLock lock(&mutex_);
    report_.weights = static_cast<int64_t>(weights_.size());
    return report_;
  }

 private:
  absl::Status AskWhatIsThere() {
    // A name that cannot be is told of before anything is moved.
    const absl::StatusOr<Buffer> first = session_.Find(weights_.front().name);
    if (!first.ok() && !absl::IsNotFound(first.status())) return first.status();
    if (first.ok() && first->published_name() != weights_.front().name) {
      return absl::FailedPreconditionError(
          absl::StrCat(weights_.front().name, " is ", first->published_name(),
                       " now, since it has versions; load as a new one: '--prefix m@2'"));
    }
    GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Buffer> published, client_.ListPublished());
    for (const v1::Buffer& buffer : published) {
      there_.emplace(buffer.published_name(), buffer.content_hash());
    }
    return absl::OkStatus();
  }

  void Work() {
    for (;;) {
      const size_t turn = next_.fetch_add(1);
      if (turn >= weights_.size() || failed_.load()) return;
      absl::Status status = Load(*order_[turn]);
      if (status.ok()) continue;
      absl::MutexLock lock(&mutex_);
      if (status_.ok()) status_ = std::move(status);
      failed_.store(true);
    }
  }

  absl::Status Load(const Weight& weight) {
    const std::string hash = ContentHash(weight);
    auto there = there_.find(weight.name);
    if (there != there_.end()) {
      if (there->second != hash) return Collision(weight, there->second);
      Found(weight);
      return absl::OkStatus();
    }
    // Another loader may have been quicker since.
    absl::StatusOr<bool> same = IsThere(weight, hash);
    if (!same.ok()) return same.status();
    if (*same) {
      Found(weight);
      return absl::OkStatus();
    }
    client::TransferReport moved;
    GEMMD_ASSIGN_OR_RETURN(Buffer buffer, Make(weight, moved));
    const absl::Status published =
        session_.Publish(buffer, weight.name, {.content_hash = hash, .ttl = options_.ttl}, {});
    {
      absl::MutexLock lock(&mutex_);
      Accumulate(moved, report_.transfers);
      report_.moved_bytes += moved.bytes;
      report_.loaded += published.ok();
    }
    if (!absl::IsAlreadyExists(published)) return published;
    same = IsThere(weight, hash);  // the buffer that was made here goes
    if (!same.ok() || !*same) return same.ok() ? published : same.status();
    absl::MutexLock lock(&mutex_);
    ++report_.found;
    return absl::OkStatus();
  }

  // Whether it is published with this content; ALREADY_EXISTS for another.
  absl::StatusOr<bool> IsThere(const Weight& weight, const std::string& hash) {
    absl::StatusOr<Buffer> found = session_.Find(weight.name);
    if (absl::IsNotFound(found.status())) return false;
    if (!found.ok()) return found.status();
    if (found->published_name() != weight.name) return false;  // of a version
    if (found->content_hash() != hash) return Collision(weight, found->content_hash());
    return true;
  }

  absl::StatusOr<Buffer> Make(const Weight& weight, client::TransferReport& moved) {
    absl::StatusOr<Buffer> buffer = session_.CreateBuffer({.dtype = weight.dtype,
                                                           .shape = weight.shape,
                                                           .size_bytes = weight.size_bytes,
                                                           .label = weight.label});
    if (!buffer.ok()) return buffer;
    absl::Status done;
    if (weight.form == Form::kQuantize) {
      done = Quantize(weight, *buffer, moved);
    } else {
      done = Move(weight, *buffer, moved);
    }
    if (done.ok() && !weight.scale_values.empty()) {
      const auto at = LinearScalesAt(static_cast<int64_t>(weight.values->data.size()));
      const auto scales = absl::MakeConstSpan(weight.scale_values);
      done = Upload(*buffer, client::AsBytes(scales), at, moved);
    }
    if (!done.ok()) return done;
    return buffer;
  }

  absl::Status Quantize(const Weight& weight, Buffer& buffer, client::TransferReport& moved) {
    const files::DType file = *weight.values->dtype;
    absl::StatusOr<Buffer> source =
        session_.CreateBuffer({.dtype = file == files::DType::kF64 ? DType::kF32 : ToClient(file),
                               .shape = weight.shape,
                               .device = std::string(buffer.device()),
                               .label = "gemmctl load"});
    if (!source.ok()) return source.status();
    GEMMD_RETURN_IF_ERROR(Move(weight, *source, moved));
    int64_t count = 1;
    for (int64_t extent : weight.shape) count *= extent;
    client::OpList ops;
    ops.Add(client::Quantize{
        .src = source->tensor(),
        .dst = buffer.View(DType::kE4M3, weight.shape),
        .scales = buffer.View(DType::kF32, client::ScalesShape(weight.shape, weight.granularity),
                              LinearScalesAt(count)),
        .granularity = weight.granularity});
    return session_.Execute(ops).status();
  }

  // The values as they are; F64 as F32.
  absl::Status Move(const Weight& weight, Buffer& buffer, client::TransferReport& moved) {
    if (*weight.values->dtype != files::DType::kF64) {
      return Upload(buffer, Chars(weight.values->data), 0, moved);
    }
    const int64_t count = static_cast<int64_t>(weight.values->data.size()) / 8;
    std::vector<float> floats(count);
    for (int64_t i = 0; i < count; ++i) {
      floats[i] =
          static_cast<float>(files::ElementAt(files::DType::kF64, weight.values->data.data(), i));
    }
    return Upload(buffer, client::AsBytes(absl::MakeConstSpan(floats)), 0, moved);
  }

  absl::Status Upload(Buffer& buffer, absl::string_view data, int64_t at,
                      client::TransferReport& moved) {
    client::TransferOptions transfer;
    transfer.route = options_.route;
    int64_t told = 0;
    transfer.progress = [&](int64_t done, int64_t) {
      Progress(done - told);
      told = done;
    };
    GEMMD_ASSIGN_OR_RETURN(client::TransferReport report, buffer.Upload(data, at, transfer));
    Accumulate(report, moved);
    return absl::OkStatus();
  }

  void Found(const Weight& weight) {
    Progress(weight.source_bytes());
    absl::MutexLock lock(&mutex_);
    ++report_.found;
    report_.found_bytes += weight.source_bytes();
  }

  void Progress(int64_t bytes) {
    if (!options_.progress) return;
    absl::MutexLock lock(&progress_mutex_);
    done_bytes_ += bytes;
    options_.progress(std::min(done_bytes_, total_bytes_), total_bytes_);
  }

  client::Client& client_;
  client::Session& session_;
  const std::vector<Weight>& weights_;
  const LoadOptions& options_;
  absl::flat_hash_map<std::string, std::string> there_;  // name -> hash, when it began
  int64_t total_bytes_ = 0;
  std::vector<const Weight*> order_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  absl::Mutex progress_mutex_;
  int64_t done_bytes_ ABSL_GUARDED_BY(progress_mutex_) = 0;
  absl::Mutex mutex_;
  LoadReport report_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status LoadWeights(client::Client& client, client::Session& session,
                         const std::vector<Weight>& weights, const LoadOptions& options,
                         LoadReport& report) {
  const absl::Time start = absl::Now();
  Loader loader(client, session, weights, options);
  absl::Status status = loader.Run();
  report = loader.TakeReport();
  report.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  report.transfers.seconds = report.seconds;  // they ran beside each other
  return status;
}

}  // namespace gemmd::cli
