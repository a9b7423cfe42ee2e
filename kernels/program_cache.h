// ProgramCache: programs by the ops they were compiled of. Who sends the same ops again, on
// whatever buffers, gets the same program, and with it what the program remembers of its runs
// (launches made ready, recorded graphs): choosing kernels and making launches ready takes as long
// as a small program runs.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/op.h"

namespace gemmd::kernels {

// Every field of every op, bit by bit: equal keys are equal programs. Inline data is no part of it.
std::string KeyOf(absl::Span<const Op> ops);

// Thread-safe. Forgets what was used longest ago.
class ProgramCache {
 public:
  using ProgramOr = absl::StatusOr<std::shared_ptr<const Program>>;

  // Remembers at most `max_programs`, of at most `max_ops` ops together. A program of more than a
  // quarter of them is not remembered. Tables of matrices count, four of them as an op.
  ProgramCache(size_t max_programs, size_t max_ops)
      : max_programs_(max_programs), max_ops_(max_ops) {}

  // The program of `ops`, by `compile` unless it is remembered. Errors are not remembered. Two
  // threads that miss at once both compile.
  ProgramOr Get(absl::Span<const Op> ops, absl::FunctionRef<ProgramOr()> compile);

  // Forgets all. What is being compiled meanwhile is not remembered either.
  void Clear();

  size_t size() const;

 private:
  struct Entry {
    std::string key;
    size_t ops = 0;
    std::shared_ptr<const Program> program;
  };
  using Entries = std::list<Entry>;  // the last used first

  const size_t max_programs_;
  const size_t max_ops_;
  mutable absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Entries::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  size_t ops_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t cleared_ ABSL_GUARDED_BY(mutex_) = 0;  // times
};

}  // namespace gemmd::kernels
