// How many threads gRPC runs, and how long one looks for the next bytes before it sleeps. gRPC has
// no setting for either.
//
// Its threads take turns at the sockets: each call wakes the one that has slept longest. With half
// a machine's processors of them that is a processor that has slept long, too, and takes 30 us and
// more to come back on many virtual machines; a few threads stay warm. And a thread that looks
// again for a while needs not be woken at all.
//
// Its executor does what a thread leaves that meets another at one connection. It starts threads
// when much is left to it, as by large transfers, up to two a processor, and keeps them; what is
// left then wakes one or another that has slept long. Two clients on two GPUs were served 1.85
// times as fast as one, and 1.47 times after a program that left twelve such threads; two stay.
//
// So this stands in front of two functions of the C library, sysconf for gRPC's question how many
// processors there are, and epoll_wait, and of gRPC's own gpr_cpu_num_cores. A program that has it
// linked in has it, and so has any process with libgemmd_grpc_threads.so in LD_PRELOAD, Python's
// workers for one. Unless told it hands every call on. gRPC is known by its shared libraries' names
// (libgpr, cygrpc); one that is linked statically keeps its number of threads.

#pragma once

#include <cstdint>

// gRPC asks how many processors there are when it is loaded, before main: a number of threads is
// the environment's or, where that is unset and gRPC would run more, what a program defines here. 2
// to 16; 0: gRPC's own, half of the machine's processors within the same bounds.
extern "C" int gemmd_default_grpc_threads;

namespace gemmd::grpc_threads {

// Unset or no number is 0.
inline constexpr char kThreadsVariable[] = "GEMMD_GRPC_THREADS";
inline constexpr char kBusyPollVariable[] = "GEMMD_BUSY_POLL_US";  // at a process' start

// What gRPC is told on a machine with so many: it runs half as many threads.
long ProcessorsForGrpc(long processors);
// And its executor, which runs twice as many at most: one for long work, one for all else.
unsigned ProcessorsForExecutor(unsigned processors);

// For how long after the last event a thread looks for the next one; 0: not at all. Any thread, any
// time; a thread that sleeps already does so until its next event.
void BusyPoll(int64_t microseconds);

struct Polled {
  double seconds = 0;  // spent looking, since the process began
  int64_t found = 0;   // times that something came meanwhile: a wake saved each
};
Polled BusyPolled();

}  // namespace gemmd::grpc_threads
