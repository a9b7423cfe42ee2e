// docs/api.md's C++ example as a program; doc_examples.py checks that the two are the same.

#include <iostream>
#include <string>

#include "client/cpp/client.h"

using namespace gemmd::client;  // NOLINT: as in the text

absl::Status Multiply(const std::string& target) {
  absl::StatusOr<Client> client = Client::Connect(target);
  if (!client.ok()) return client.status();
  absl::StatusOr<Session> session = client->OpenSession({.label = "api.md"});
  if (!session.ok()) return session.status();
  auto a = session->CreateBuffer({.dtype = DType::kF32, .shape = {1, 3}});  // [m, k]
  auto w = session->CreateBuffer({.dtype = DType::kF32, .shape = {2, 3}});  // [n, k]
  auto d = session->CreateBuffer({.dtype = DType::kF32, .shape = {1, 2}});  // [m, n]
  if (!a.ok() || !w.ok() || !d.ok()) return absl::ResourceExhaustedError("no memory");

  const float x[] = {1, 2, 3};
  const float weights[] = {1, 0, 0, 1, 1, 1};
  OpList ops;
  ops.Add(Write{a->tensor(), AsBytes(absl::MakeConstSpan(x))});
  ops.Add(Write{w->tensor(), AsBytes(absl::MakeConstSpan(weights))});
  ops.Add(Matmul{.a = a->tensor(), .b = w->tensor(), .d = d->tensor()});
  ops.Add(Read{d->tensor()});
  absl::StatusOr<Result> result = session->Execute(ops);  // one round trip
  if (!result.ok()) return result.status();
  std::cout << result->Output<float>(0)[0] << " " << result->Output<float>(0)[1] << "\n";
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const absl::Status status = Multiply(argv[1]);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
