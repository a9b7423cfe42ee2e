// KernelInfo: what a kernel of the pool is and what it demands. KernelChoice: which one was taken,
// and why.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/problem.h"

namespace gemmd::kernels {

struct KernelInfo {
  std::string name;          // arch + dtype + op (+ config): "cpu_f32_blas", unique on a device
  std::string family;        // one source file: "cpu_blas"
  std::string description;   // one line for people: what it serves, what it demands
  std::string why_off;       // why it is never chosen; empty when it may be
  bool quarantined = false;  // off because it failed its self-test
};

enum class ChoiceReason : uint8_t {
  kTable,     // a measured entry of the tuning table
  kTuned,     // measured on this device by the daemon, or imported into it
  kModel,     // the cost model's best
  kForced,    // the request named it
  kFallback,  // nothing better can serve this problem; the text says what it lacks
  kOnly,      // the op has a single kernel (copy, fill, ...)
};
std::string_view Name(ChoiceReason reason);  // "table", "tuned", "model", "forced", ...

struct KernelChoice {
  std::string_view kernel;  // points at the KernelInfo's name, which lives as long as its Backend
  ChoiceReason reason = ChoiceReason::kOnly;
  double estimated_seconds = 0;
};

// One row of an Explain answer, best first.
struct Candidate {
  std::string_view kernel;
  bool feasible = false;
  // What an infeasible one lacks: "k=70 is not a multiple of 16 (16-byte rows)". Of a feasible one
  // that was not chosen, by how much it lost, where the backend tells: "0.8 us slower by the
  // model".
  std::string why_not;
  double modelled_seconds = 0;  // 0 when infeasible
  double measured_seconds = 0;  // from the tuning table; 0 when it has no entry
  bool tuned = false;           // measured by the daemon, not part of the table that shipped
  bool chosen = false;
};

}  // namespace gemmd::kernels
