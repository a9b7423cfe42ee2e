// The Queue stream: any messages in any order, ended or cut.

#include <thread>

#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/scripts.pb.h"
#include "tests/fuzz/served.h"

GEMMD_PROTO_FUZZER(gemmd::fuzz::QueueScript, input) {
  gemmd::fuzz::Served& served = gemmd::fuzz::Served::Get();
  gemmd::fuzz::QueueScript script = input;
  served.Bind(script);
  auto context = served.Context();
  auto stream = served.compute().Queue(context.get());
  int64_t last = -1;
  bool ordered = true;
  std::thread reader([&] {
    for (gemmd::v1::QueueResponse response; stream->Read(&response);) {
      for (const gemmd::v1::Completion& item : response.completions().items()) {
        ordered = ordered && (last == -1 || item.sequence() > last);
        last = item.sequence();
      }
    }
  });
  for (const gemmd::v1::QueueRequest& request : script.requests()) {
    if (!stream->Write(request)) break;
  }
  if (script.cut()) {
    context->TryCancel();
  } else {
    stream->WritesDone();
  }
  reader.join();
  served.Judge(stream->Finish());
  if (!ordered) __builtin_trap();
  // A stream that held the session takes it along, a grace period later.
  for (const gemmd::v1::QueueRequest& request : script.requests()) {
    if (request.open().hold_session()) {
      served.Restore();
      break;
    }
  }
  served.Check();
}
