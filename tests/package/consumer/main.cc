// Somebody's program, built against an installed gemmd. Prints "1 6 on cpu:0".
#include <iostream>

#include "client/cpp/client.h"
#include "gemmd/v1/types.pb.h"

int main(int, char** argv) {
  using namespace gemmd::client;
  auto client = Client::Connect(argv[1]);
  if (!client.ok()) return std::cerr << client.status() << "\n", 1;
  auto session = client->OpenSession({.label = "consumer"});
  if (!session.ok()) return std::cerr << session.status() << "\n", 1;
  auto x = session->CreateBuffer({.dtype = DType::kF32, .shape = {1, 3}});
  auto w = session->CreateBuffer({.dtype = DType::kF32, .shape = {2, 3}});
  auto y = session->CreateBuffer({.dtype = DType::kF32, .shape = {1, 2}});
  const float xs[] = {1, 2, 3}, ws[] = {1, 0, 0, 1, 1, 1};
  OpList ops;
  ops.Add(Write{x->tensor(), AsBytes(absl::MakeConstSpan(xs))});
  ops.Add(Write{w->tensor(), AsBytes(absl::MakeConstSpan(ws))});
  ops.Add(Matmul{.a = x->tensor(), .b = w->tensor(), .d = y->tensor()});
  ops.Add(Read{y->tensor()});
  auto queue = session->OpenQueue();
  if (!queue.ok()) return std::cerr << queue.status() << "\n", 1;
  auto ticket = queue->Submit(ops);
  if (!ticket.ok()) return std::cerr << ticket.status() << "\n", 1;
  auto result = ticket->Wait();
  if (!result.ok()) return std::cerr << result.status() << "\n", 1;
  std::cout << result->Output<float>(0)[0] << " " << result->Output<float>(0)[1] << " on "
            << result->report().device() << "\n";
}
