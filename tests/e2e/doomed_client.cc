// A client that will be killed: owns 100 buffers, is in the middle of an upload, has work queued,
// says so, and waits for its end.
//
//   doomed_client TARGET
//
// doomed_client TARGET armed: arms a plan instead and rings it over and over.

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "client/cpp/armed.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/wire.h"

namespace {

int RingForEver(gemmd::client::Session& session) {
  using namespace gemmd;  // NOLINT: a program of one page
  const client::Buffer x = e2e::MakeBuffer(session, {64, 64});
  const client::Buffer y = e2e::MakeBuffer(session, {64, 64});
  client::OpList ops;
  for (int i = 0; i < 8; ++i) {
    ops.Add(client::Matmul{.a = x.tensor(), .b = x.tensor(), .d = y.tensor()});
  }
  const client::Plan plan = e2e::Must(session.CreatePlan(ops));
  std::puts("ready");
  std::fflush(stdout);
  for (;;) {
    client::Armed armed = e2e::Must(session.Arm(plan));
    for (int run = 0; run < 20; ++run) {
      if (!armed.Ring().ok() || !armed.Wait(absl::Seconds(20)).ok()) return 1;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace gemmd;  // NOLINT: a program of one page
  if (argc < 2 || argc > 3) return 2;
  client::Client client = e2e::Must(client::Client::Connect(argv[1]));
  client::Session session = e2e::Must(client.OpenSession({.label = "doomed"}));
  if (argc == 3 && std::strcmp(argv[2], "armed") == 0) return RingForEver(session);
  std::vector<client::Buffer> buffers;
  for (int i = 0; i < 100; ++i) {
    buffers.push_back(e2e::Must(session.CreateBuffer({.size_bytes = 1 << 20})));
  }
  e2e::Wire wire(argv[1]);
  grpc::ClientContext context;
  v1::UploadResponse response;
  auto upload = wire.buffers().Upload(&context, &response);
  const std::string id(session.id().bytes());
  const std::string buffer(buffers[0].id().bytes());
  if (!upload->Write(e2e::Chunk(id, buffer, 0, std::string(1 << 19, 'x')))) return 1;
  if (!e2e::WaitUntil([&] { return wire.GetBuffer(id, buffer).committed_bytes() == 1 << 19; })) {
    return 1;
  }
  std::puts("ready");
  std::fflush(stdout);
  for (;;) pause();
}
