// CpuStream: one thread that runs programs in the order they were launched.

#pragma once

#include <deque>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/backend.h"
#include "kernels/cpu/program.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/workers.h"

namespace gemmd::kernels::cpu {

class CpuStream final : public Stream {
 public:
  // `workers` outlives the stream.
  CpuStream(Workers& workers, const StreamOptions& options);
  ~CpuStream() override;

  void Launch(std::shared_ptr<const Program> program, Bindings bindings, Done done) override;
  // No different: what is small runs on the caller's thread anyway.
  void LaunchAndWait(std::shared_ptr<const Program> program, Bindings bindings,
                     Done done) override {
    Launch(std::move(program), std::move(bindings), std::move(done));
  }

 private:
  struct Job {
    std::shared_ptr<const Program> program;  // shared: a plan's program runs many times at once
    Bindings bindings;
    Done done;
  };

  void Run(Job job);
  void RunOps(const CpuProgram& program, const Bindings& bindings, LaunchResult& result);
  void ThreadMain();

  Workers& workers_;
  const double inline_below_seconds_;
  // Used by whoever runs a program: the thread, or a caller that found the stream idle. Never both,
  // since busy_ hands it over.
  Scratch scratch_;
  absl::Mutex mutex_;
  std::deque<Job> queue_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // from a program's start to its done's return
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gemmd::kernels::cpu
