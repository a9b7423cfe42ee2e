// ExecuteRequest: any list of ops over real buffers, run for real.

#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/served.h"

GEMMD_PROTO_FUZZER(gemmd::v1::ExecuteRequest, input) {
  gemmd::fuzz::Served& served = gemmd::fuzz::Served::Get();
  gemmd::v1::ExecuteRequest request = input;
  served.Bind(request);
  gemmd::v1::ExecuteResponse response;
  const grpc::Status status = served.compute().Execute(served.Context().get(), request, &response);
  served.Judge(status);
  int reads = 0;
  for (const gemmd::v1::Op& op : request.ops()) reads += op.has_read();
  if (status.ok() && response.outputs_size() != reads) __builtin_trap();
  served.Check();
}
