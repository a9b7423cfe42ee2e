// A libcuda.so.1 of two GPUs that are threads: streams run writes, waits, copies and the one kernel
// in order. Tests reach what the driver has beside that by these functions of the same library.

#pragma once

#include <cstdint>

extern "C" {
struct CUstream_st;
// A stream of a GPU's primary context.
CUstream_st* FakeCudaStream(int gpu);
// Waits until the stream has done all it was given; false after so many milliseconds.
bool FakeCudaSettled(CUstream_st* stream, int most_ms);
// Host functions that ran on the stream, to see where in its order a test's own work is.
void FakeCudaCall(CUstream_st* stream, void (*function)(void*), void* argument);
// Everything queued on the stream since the last call of this, queued once more: a graph's replay.
// The next capture is the end of the graph before.
void FakeCudaCapture(CUstream_st* stream, bool on);
void FakeCudaReplay(CUstream_st* stream);
int FakeCudaRegistrations();
int FakeCudaKernels();  // launched, ever
int FakeCudaCopies();   // likewise, of the driver's
}
