#include "kernels/bench/cuda/cupti_timer.h"

#include <cupti.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/bench/cuda/mark.h"
#include "kernels/bench/slots.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/shared_library.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::ToStatus;

constexpr size_t kBufferBytes = 4 << 20;
constexpr size_t kBufferAlign = 8;  // CUPTI's demand

// CUPTI's callbacks carry no context pointer, so what they share is a process-wide value: the only
// one of the bench.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  absl::Mutex mutex;
  std::vector<KernelRecord> records ABSL_GUARDED_BY(mutex);
  std::vector<KernelSpan> spans ABSL_GUARDED_BY(mutex);  // of the same kernels, with their names
  size_t dropped ABSL_GUARDED_BY(mutex) = 0;
};
Cupti& Shared() {
  static Cupti* cupti = new Cupti;  // never freed: CUPTI may call back while the process ends
  return *cupti;
}

void CUPTIAPI GiveBuffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlign, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI TakeBuffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t,
                         size_t valid_bytes) {
  Cupti& cupti = Shared();
  absl::MutexLock lock(&cupti.mutex);
  CUpti_Activity* record = nullptr;
  while (valid_bytes > 0 && cupti.next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    // Older libraries' records are shorter, but start, end and name lie at the same places.
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    cupti.records.push_back({kernel->start, kernel->end,
                             kernel->name != nullptr && absl::StartsWith(kernel->name, kMarkName)});
    cupti.spans.push_back(
        {kernel->name != nullptr ? kernel->name : "", kernel->start, kernel->end});
  }
  size_t dropped = 0;
  if (cupti.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) cupti.dropped += dropped;
  std::free(buffer);
}

absl::Status CuptiStatus(CUptiResult code, std::string_view what) {
  if (code == CUPTI_SUCCESS) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("CUPTI: ", Text(what), ": code ", static_cast<int>(code)));
}

class CuptiTimer : public Timer {
 public:
  CuptiTimer(const Flush& flush, cudaStream_t stream) : flush_(flush), stream_(stream) {}

  std::string method() const override { return "cupti"; }

  absl::StatusOr<std::vector<std::vector<double>>> Time(absl::Span<const Call> calls,
                                                        int repeats) override {
    if (absl::Status status = FlushRecords(0); !status.ok()) return status;
    Forget();  // what ran since the last timing
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (const Call& call : calls) {
        // The mark comes before L2's flush: the device is busy for long enough that the call's
        // kernels are queued when it ends.
        for (absl::Status status : {flush_.QueueMark(stream_), flush_.QueueL2(stream_)}) {
          if (!status.ok()) return status;
        }
        if (absl::Status status = call(stream_); !status.ok()) return status;
      }
    }
    // Asks again, with force, when CUPTI held records back.
    absl::StatusOr<std::vector<std::vector<double>>> seconds;
    for (int flag : {0, static_cast<int>(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)}) {
      if (absl::Status status = FlushRecords(flag); !status.ok()) return status;
      absl::StatusOr<std::vector<KernelRecord>> records = Records();
      if (!records.ok()) return records.status();
      seconds = SecondsOfCalls(*std::move(records), calls.size(), repeats);
      if (seconds.ok()) break;
    }
    return seconds;
  }

 private:
  absl::Status FlushRecords(int flag) {
    if (absl::Status status = WaitIdle(stream_); !status.ok()) return status;
    return CuptiStatus(Shared().flush_all(flag), "flush");
  }

  static void Forget() {
    absl::MutexLock lock(&Shared().mutex);
    Shared().records.clear();
    Shared().spans.clear();
  }

  static absl::StatusOr<std::vector<KernelRecord>> Records() {
    Cupti& cupti = Shared();
    absl::MutexLock lock(&cupti.mutex);
    if (cupti.dropped != 0) {
      return absl::InternalError(absl::StrCat("CUPTI dropped ", cupti.dropped, " records"));
    }
    return cupti.records;
  }

  const Flush& flush_;
  cudaStream_t stream_;
};

}  // namespace

absl::Status StartCupti(const std::string& library_dir) {
  absl::StatusOr<cuda::SharedLibrary> library = cuda::SharedLibrary::Open(
      {"libcupti.so.13", "libcupti.so.12", "libcupti.so"},
      {library_dir, "/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"});
  if (!library.ok()) return library.status();
  Cupti& cupti = Shared();
  for (absl::Status status :
       {library->Find("cuptiActivityRegisterCallbacks", cupti.register_callbacks),
        library->Find("cuptiActivityEnable", cupti.enable),
        library->Find("cuptiActivityFlushAll", cupti.flush_all),
        library->Find("cuptiActivityGetNextRecord", cupti.next_record),
        library->Find("cuptiActivityGetNumDroppedRecords", cupti.dropped_records)}) {
    if (!status.ok()) return status;
  }
  library->Keep();  // its threads run until the process ends
  if (absl::Status s = CuptiStatus(cupti.register_callbacks(GiveBuffer, TakeBuffer), "callbacks");
      !s.ok()) {
    return s;
  }
  return CuptiStatus(cupti.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "kernel records");
}

std::unique_ptr<Timer> MakeCuptiTimer(const Flush& flush, cudaStream_t stream) {
  return std::make_unique<CuptiTimer>(flush, stream);
}

absl::StatusOr<std::vector<KernelSpan>> TakeKernelSpans() {
  Cupti& cupti = Shared();
  if (cupti.flush_all == nullptr) return absl::UnimplementedError("CUPTI was not started");
  const absl::Status status =
      CuptiStatus(cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flush");
  if (!status.ok()) return status;
  absl::MutexLock lock(&cupti.mutex);
  cupti.records.clear();
  return std::exchange(cupti.spans, {});
}

}  // namespace gemmd::kernels::bench
