// StaleTimes: which times of a tuning table were measured on other machine code than this build's.

#pragma once

#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "kernels/cuda/tuning/tuning_table.h"

namespace gemmd::kernels::cuda {

// Code hashes (code_hash.h) by the config's name, which is its kernel's with k undivided.
using KernelCodes = absl::btree_map<std::string, std::string>;

// Adds what this build runs under the name `kernel`, if it has such a kernel.
void AddCode(const std::string& kernel, KernelCodes& codes);

class StaleTimes {
 public:
  // Of a shape whose fastest kernels go, what remains is believed only this close to them: beyond
  // it the cost model, which misses the fastest by 1 % in the mean, is the better judge.
  static constexpr double kNear = 1.02;

  // `measured` is the code that the table's times are of; it outlives this.
  explicit StaleTimes(const KernelCodes& measured) : measured_(measured) {}

  // Removes from one shape's kernels those whose code has changed, or all of them (kNear). A kernel
  // that this build lacks stays.
  void RemoveFrom(std::vector<TunedKernel>& kernels);

  // Whether nothing was left of tables that had something.
  bool none_left() const { return kept_ == 0 && !changed_.empty(); }
  // Empty when all stayed; else which kernels changed, what that cost, and the remedy.
  std::string Describe() const;

 private:
  bool IsStale(const std::string& kernel);

  const KernelCodes& measured_;
  absl::btree_set<std::string> changed_;  // names of configs
  int times_ = 0;
  int kept_ = 0;    // of the times
  int shapes_ = 0;  // left out
};

}  // namespace gemmd::kernels::cuda
