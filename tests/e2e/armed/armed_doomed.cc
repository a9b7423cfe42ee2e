// A caller of armed plans that will be killed: opens a session that ends with it, arms plans, and
// rings them as fast as it can.
//
//   armed_doomed TARGET

#include <cstdio>

#include "tests/e2e/armed_wire.h"

int main(int argc, char** argv) {
  using namespace gemmd::e2e;  // NOLINT: a program of one page
  if (argc != 2) return 2;
  Wire wire(argv[1]);
  const std::string session = wire.OpenSession("doomed");
  gemmd::v1::HoldRequest request;
  request.set_session_id(session);
  grpc::ClientContext context;
  const auto hold = wire.sessions().Hold(&context, request);
  gemmd::v1::HoldEvent event;
  if (!hold->Read(&event)) return 1;
  std::puts("held");
  std::fflush(stdout);
  for (;;) {
    ArmedWire armed(wire, 0, session);
    const ArmedMatmul matmul(wire, session, 2);
    std::vector<int> slots;
    for (int i = 0; i < 4; ++i) slots.push_back(armed.Arm(armed.Plan(matmul.ops()), i % 2 == 0));
    for (int round = 0; round < 50; ++round) {
      for (const int slot : slots) armed.caller().Ring(slot);
      for (const int slot : slots) {
        if (armed.caller().Wait(slot) != GEMMD_ARMED_RAN) return 1;
      }
    }
    if (!armed.Disarm(slots).ok()) return 1;
  }
}
