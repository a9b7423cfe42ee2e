// Copies between a caller's memory and shared memory, by several threads when they are long: one
// core moves 6 to 12 GB/s, a fraction of what a server's memory and PCIe do.

#ifndef GEMMD_CLIENT_CPP_WIDE_COPY_H_
#define GEMMD_CLIENT_CPP_WIDE_COPY_H_

#include <cstddef>

namespace gemmd::client {

// Threads that WideCopy takes at most, itself included: half of the machine's cores, no more
// than 4.
int WideCopyThreads();

// As memcpy. Each thread gets a megabyte at least, so short copies stay on the caller's.
void WideCopy(void* target, const void* source, size_t bytes, int threads = WideCopyThreads());

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CPP_WIDE_COPY_H_
