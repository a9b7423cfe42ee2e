#include "kernels/cpu/workers.h"

#include <algorithm>

namespace gemmd::kernels::cpu {

Workers::Workers(int threads) {
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { HelperMain(); });
}

Workers::~Workers() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    wake_.SignalAll();
  }
  for (std::thread& helper : helpers_) helper.join();
}

void Workers::RunPieces(Loop& loop) {
  for (;;) {
    const int64_t begin = loop.next.fetch_add(loop.piece, std::memory_order_relaxed);
    if (begin >= loop.count) return;
    loop.body(begin, std::min(begin + loop.piece, loop.count));
  }
}

void Workers::For(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  if (count <= grain || helpers_.empty() || !turn_.TryLock()) return body(0, count);
  // Four pieces a thread even out a late start without many fetches of `next`.
  const int64_t pieces = int64_t{4} * threads();
  Loop loop{count, std::max(grain, (count + pieces - 1) / pieces), body};
  {
    absl::MutexLock lock(&mutex_);
    loop_ = &loop;
    ++generation_;
    wake_.SignalAll();
  }
  RunPieces(loop);
  {
    absl::MutexLock lock(&mutex_);
    loop_ = nullptr;  // a helper that has not woken yet finds nothing, and is not waited for
    while (running_ > 0) idle_.Wait(&mutex_);
  }
  turn_.Unlock();
}

void Workers::HelperMain() {
  uint64_t seen = 0;
  absl::MutexLock lock(&mutex_);
  while (!stop_) {
    if (loop_ == nullptr || seen == generation_) {
      wake_.Wait(&mutex_);
      continue;
    }
    seen = generation_;
    Loop& loop = *loop_;
    ++running_;
    mutex_.Unlock();
    RunPieces(loop);
    mutex_.Lock();
    if (--running_ == 0) idle_.Signal();
  }
}

}  // namespace gemmd::kernels::cpu
