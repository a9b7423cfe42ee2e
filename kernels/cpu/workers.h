// Workers: a few threads that share out one loop at a time. The CPU backend has one set, for
// everything except OpenBLAS's own threads.

#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace gemmd::kernels::cpu {

// Thread-safe. A caller that finds the threads busy with another's loop runs its own alone, so
// nobody waits; results must therefore not depend on how a loop is cut.
class Workers {
 public:
  explicit Workers(int threads);  // the caller's thread counts as one
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls body(begin, end) for pieces of [0, count) of about `grain` or more, the caller's thread
  // taking part. A loop of at most `grain` runs here and now: waking a thread costs about 20 us.
  void For(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

 private:
  struct Loop {
    int64_t count;
    int64_t piece;
    absl::FunctionRef<void(int64_t, int64_t)> body;
    std::atomic<int64_t> next{0};
  };

  static void RunPieces(Loop& loop);
  void HelperMain();

  absl::Mutex turn_;  // held by the caller whose loop it is
  absl::Mutex mutex_;
  absl::CondVar wake_;
  absl::CondVar idle_;
  Loop* loop_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> helpers_;
};

}  // namespace gemmd::kernels::cpu
