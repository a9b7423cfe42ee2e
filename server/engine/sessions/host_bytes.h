// What programs and plans take of host memory, as tenants are charged for it.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/engine/sessions/tenant.h"
#include "status/propagate.h"

namespace gemmd::server {

// Of an op, compiled. On the CPU backend it takes 900 bytes.
inline constexpr int64_t kOpBytes = 1024;
// Of a slot of a plan or of a run's buffers: its handle, what is known of it, a lease.
inline constexpr int64_t kSlotBytes = 160;
// Of a buffer in the place of another in a run that is remembered.
inline constexpr int64_t kRebindingBytes = 32;
// Of a byte of a message that is parsed and is no inline data: an op of 2 bytes takes 64.
inline constexpr int64_t kParsedByte = 32;

inline int64_t HostBytesOf(const kernels::Program& program) {
  return static_cast<int64_t>(program.steps().size()) * kOpBytes;
}

// The program, charged to the tenant for as long as anybody has it: a plan, a run, an answer.
// RESOURCE_EXHAUSTED when the tenant has no room for it.
inline absl::StatusOr<std::shared_ptr<const kernels::Program>> ChargedProgram(
    Tenant& tenant, std::shared_ptr<const kernels::Program> program) {
  struct Held {
    std::shared_ptr<const kernels::Program> program;
    Charge charge;
  };
  GEMMD_ASSIGN_OR_RETURN(Charge charge, tenant.TakeHostBytes(HostBytesOf(*program)));
  const kernels::Program* const address = program.get();
  auto held = std::make_shared<Held>(Held{std::move(program), std::move(charge)});
  return std::shared_ptr<const kernels::Program>(std::move(held), address);
}

}  // namespace gemmd::server
