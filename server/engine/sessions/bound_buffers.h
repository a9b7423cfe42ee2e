// BoundBuffers: the memory that a program runs on, held until it has run. Shared by the job and,
// for a plan, by what its session remembers (recent_bindings.h): a run of a plan with hundreds of
// buffers then takes one share instead of hundreds.

#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "server/engine/sessions/buffer.h"

namespace gemmd::server {

struct BoundBuffers {
  std::vector<BufferLease> leases;     // by slot
  std::vector<std::byte*> addresses;   // by slot, of those
  std::vector<const Buffer*> written;  // those of a plan that it writes

  void Reserve(size_t slots) {
    leases.reserve(slots);
    addresses.reserve(slots);
  }
  void Add(BufferLease lease) {
    addresses.push_back(lease->memory().address());
    leases.push_back(std::move(lease));
  }
  // Whether none of those written was published since, which makes it read-only.
  bool StillWritable() const {
    return std::none_of(written.begin(), written.end(),
                        [](const Buffer* buffer) { return buffer->published(); });
  }
};

}  // namespace gemmd::server
