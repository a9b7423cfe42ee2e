// Create/delete cycles against a daemon, and what they must not leave: shared by the test that runs
// some (churn_test.cc) and the soak that runs 100,000 (soak_test.cc).

#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/e2e/fixture.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {

// One cycle: a buffer created, written by an op, and deleted.
inline void CreateDelete(Wire& wire, const std::string& session, int cycles) {
  for (int i = 0; i < cycles; ++i) {
    const std::string buffer = wire.CreateBuffer(session, 65536);
    const grpc::Status filled = wire.Execute(session, {FillOp(View(buffer, {16384}), i)});
    ASSERT_TRUE(filled.ok()) << filled.error_message();
    v1::DeleteBuffersRequest request;
    request.set_session_id(session);
    request.add_buffer_ids(buffer);
    v1::DeleteBuffersResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(wire.buffers().DeleteBuffers(&context, request, &response).ok());
    ASSERT_EQ(response.freed_bytes(), 65536);
  }
}

// A thread of gRPC's that comes late to its first call gets an arena of its own.
inline constexpr int64_t kArenaBytes = 4 << 20;

// Resident memory within 3 %, or an arena, and descriptors unchanged from after the first tenth to
// the end.
inline void ExpectFlat(int cycles) {
  Daemon daemon;
  Wire wire(daemon.target());
  const std::string session = wire.OpenSession();
  CreateDelete(wire, session, std::max(cycles / 10, 1000));
  const ProcessUse early = UseOf(daemon.process().pid());
  CreateDelete(wire, session, cycles);
  const ProcessUse late = UseOf(daemon.process().pid());
  EXPECT_LE(late.resident_bytes,
            std::max(early.resident_bytes * 1.03, early.resident_bytes + 1.0 * kArenaBytes));
  EXPECT_LE(late.descriptors, early.descriptors);
  EXPECT_EQ(HoldingsOf(daemon).buffers, 0);
  std::printf("%d cycles: resident %.1f -> %.1f MiB, descriptors %d -> %d\n", cycles,
              early.resident_bytes / 1048576.0, late.resident_bytes / 1048576.0, early.descriptors,
              late.descriptors);
}

}  // namespace gemmd::e2e
