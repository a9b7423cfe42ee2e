#include "kernels/cpu/matmul/model.h"

#include <algorithm>

#include "kernels/cpu/isa.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr double kSgemmThreadFlops[] = {20e9, 55e9, 110e9};  // by Isa; 2.7 GHz server cores
constexpr double kConvertPerThread[] = {0.5e9, 1.5e9, 3e9};  // by Isa; panels of E4M3 and BF16
constexpr double kBytesPerThread = 8e9;                      // one core's share of the memory bus
constexpr double kMaxBytesPerS = 150e9;                      // a socket's bus

// OpenBLAS stays on one thread up to this (its SMP threshold).
constexpr double kOneThreadFlops = 1e6;

constexpr double kMoveOverheadSeconds = 0.15e-6;

}  // namespace

Machine MachineFor(int threads) {
  const int isa = static_cast<int>(BestIsa());
  Machine machine;
  machine.threads = threads;
  machine.sgemm_thread_flops = kSgemmThreadFlops[isa];
  machine.sgemm_flops = threads * kSgemmThreadFlops[isa];
  machine.memory_bytes_per_s = std::min(threads * kBytesPerThread, kMaxBytesPerS);
  machine.convert_per_s = threads * kConvertPerThread[isa];
  return machine;
}

double SgemmSeconds(const Machine& machine, double m, double n, double k) {
  const double flops = 2 * m * n * k;
  const bool one_thread = flops < kOneThreadFlops;
  const double rate = one_thread ? machine.sgemm_thread_flops : machine.sgemm_flops;
  // Packing reads each operand once; with few rows there is nothing to hide it behind.
  const double pack = 4 * (m * k + n * k) / machine.memory_bytes_per_s;
  return 0.3e-6 + flops / rate + pack * (one_thread ? 0.25 : 1) / (1 + std::min(m, n) / 64);
}

double MoveSeconds(const Machine& machine, double elements, double bytes) {
  const bool one_thread = elements < 64 * 1024;
  const double threads = one_thread ? machine.threads : 1;
  return kMoveOverheadSeconds +
         threads * std::max(elements / machine.convert_per_s, bytes / machine.memory_bytes_per_s);
}

}  // namespace gemmd::kernels::cpu
