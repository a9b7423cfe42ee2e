// What malloc keeps of what is freed, and how it is given back.

#pragma once

namespace gemmd::server {

// gRPC reads messages into blocks of up to a megabyte. By default glibc gives such blocks back to
// the kernel as they are freed and faults them in again for the next message, which cost uploads a
// third of their rate; now up to 64 MiB an arena stay with the process. Before any thread begins:
// glibc takes the number of arenas once.
void KeepFreedMemory();

// Gives back all that is free, in milliseconds: whoever allocates meanwhile waits.
void GiveBackFreedMemory();

}  // namespace gemmd::server
