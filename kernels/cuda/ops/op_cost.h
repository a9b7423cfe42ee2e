// What the ops beside matmul should take: for the scheduler, until the true times are known.

#pragma once

#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// Bytes of a view's sectors, of 32 bytes each: what memory has to bring once.
double TouchedSectorBytes(const TensorRef& tensor);
// Bytes that the L2 cache has to bring when neighbouring threads walk along dimension `inner`: a
// whole sector for each element when those lie apart.
double RequestedBytes(const TensorRef& tensor, int inner);

// Of a kernel that reads and writes so many dense bytes, at such a rate of the memory (0: unknown).
double StreamSeconds(double bytes, double memory_bytes_per_s);

// Of any op but matmul, on a device whose memory moves `memory_bytes_per_s` (0: unknown).
double MoveSeconds(const Op& op, double memory_bytes_per_s);

}  // namespace gemmd::kernels::cuda
