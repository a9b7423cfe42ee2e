// BufferService's unary calls, in any order.

#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/scripts.pb.h"
#include "tests/fuzz/served.h"

namespace {

using gemmd::fuzz::BufferCall;
using gemmd::fuzz::Served;

grpc::Status Send(Served& served, const BufferCall& call) {
  auto& stub = served.buffers();
  const auto context = served.Context();
  gemmd::v1::Buffer buffer;
  gemmd::v1::ListBuffersResponse listed;
  gemmd::v1::DeleteBuffersResponse deleted;
  gemmd::v1::PublishBufferResponse published;
  gemmd::v1::UnpublishBufferResponse unpublished;
  gemmd::v1::SwitchVersionResponse switched;
  gemmd::v1::ExportBufferResponse exported;
  switch (call.kind_case()) {
    case BufferCall::kCreate:
      return stub.CreateBuffer(context.get(), call.create(), &buffer);
    case BufferCall::kGet:
      return stub.GetBuffer(context.get(), call.get(), &buffer);
    case BufferCall::kList:
      return stub.ListBuffers(context.get(), call.list(), &listed);
    case BufferCall::kDelete:
      return stub.DeleteBuffers(context.get(), call.delete_(), &deleted);
    case BufferCall::kPublish:
      return stub.PublishBuffer(context.get(), call.publish(), &published);
    case BufferCall::kFind:
      return stub.FindBuffer(context.get(), call.find(), &buffer);
    case BufferCall::kUnpublish:
      return stub.UnpublishBuffer(context.get(), call.unpublish(), &unpublished);
    case BufferCall::kSwitchVersion:
      return stub.SwitchVersion(context.get(), call.switch_version(), &switched);
    case BufferCall::kExport:
      return stub.ExportBuffer(context.get(), call.export_(), &exported);
    case BufferCall::kImport:
      return stub.ImportBuffer(context.get(), call.import(), &buffer);
    case BufferCall::KIND_NOT_SET:
      break;
  }
  return grpc::Status::OK;
}

}  // namespace

GEMMD_PROTO_FUZZER(gemmd::fuzz::BufferScript, input) {
  Served& served = Served::Get();
  gemmd::fuzz::BufferScript script = input;
  served.Bind(script);
  for (const BufferCall& call : script.calls()) served.Judge(Send(served, call));
  // Buffers may be gone or published now; the next input starts from the same place.
  served.Restore();
  served.Check();
}
