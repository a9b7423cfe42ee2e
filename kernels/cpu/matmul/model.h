// Machine: the few rates that the CPU kernels' cost models share. Calibrated constants per
// instruction set, not a benchmark at start, so that the same problem gets the same kernel on every
// run; the server corrects estimates by the times it sees.

#pragma once

#include "kernels/problem.h"

namespace gemmd::kernels::cpu {

struct Machine {
  int threads = 1;
  double sgemm_flops = 0;         // all threads, large square matrices
  double sgemm_thread_flops = 0;  // one thread
  double memory_bytes_per_s = 0;
  double convert_per_s = 0;  // elements of any type to or from FP32, all threads
};

Machine MachineFor(int threads);

// Seconds of one cblas_sgemm call.
double SgemmSeconds(const Machine& machine, double m, double n, double k);

// Seconds of a part of a matmul that moves or converts `elements`, in long rows.
double MoveSeconds(const Machine& machine, double elements, double bytes);

}  // namespace gemmd::kernels::cpu
