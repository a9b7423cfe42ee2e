#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

using grpc::StatusCode;

v1::QueueRequest Open(const std::string& session) {
  v1::QueueRequest request;
  request.mutable_open()->set_session_id(session);
  return request;
}

v1::QueueRequest Batch(int64_t sequence, const std::vector<v1::Op>& ops) {
  v1::QueueRequest request;
  request.mutable_batch()->set_sequence(sequence);
  for (const v1::Op& op : ops) *request.mutable_batch()->add_ops() = op;
  return request;
}

// Sends all of `requests` and returns the stream's status, or that of the first batch that failed.
grpc::Status Send(Prepared& p, const std::vector<v1::QueueRequest>& requests) {
  grpc::ClientContext context;
  auto stream = p.wire.compute().Queue(&context);
  for (const v1::QueueRequest& request : requests) {
    if (!stream->Write(request)) break;
  }
  stream->WritesDone();
  grpc::Status batch;
  for (v1::QueueResponse response; stream->Read(&response);) {
    for (const v1::Completion& item : response.completions().items()) {
      if (batch.ok() && item.code() != 0) {
        batch = grpc::Status(static_cast<StatusCode>(item.code()), item.message());
      }
    }
  }
  const grpc::Status status = stream->Finish();
  return status.ok() ? batch : status;
}

v1::Op GoodBatch(Prepared& p) { return FillOp(View(p.d, {4, 4}), 1); }

}  // namespace

std::vector<BadInput> BadQueues() {
  constexpr StatusCode kInvalid = StatusCode::INVALID_ARGUMENT;
  return {
      {"BatchBeforeOpen",
       kInvalid,
       {"open"},
       [](Prepared& p) { return Send(p, {Batch(1, {GoodBatch(p)})}); }},
      {"OpenTwice",
       kInvalid,
       {"open"},
       [](Prepared& p) {
         return Send(p, {Open(p.session), Open(p.session)});
       }},
      {"NeitherOpenNorBatch",
       kInvalid,
       {},
       [](Prepared& p) {
         return Send(p, {Open(p.session), v1::QueueRequest()});
       }},
      {"BatchesOfNone",
       kInvalid,
       {"batches", "1 at least"},
       [](Prepared& p) {
         v1::QueueRequest none;
         none.mutable_batches();
         return Send(p, {Open(p.session), none});
       }},
      {"ABadOneAmongBatches",
       kInvalid,
       {"sequence", "5"},
       [](Prepared& p) {
         v1::QueueRequest both;
         for (int i = 0; i < 2; ++i) {
           *both.mutable_batches()->add_items() = Batch(5, {GoodBatch(p)}).batch();
         }
         return Send(p, {Open(p.session), both});
       }},
      {"OpenOnADeadSession",
       StatusCode::NOT_FOUND,
       {"session"},
       [](Prepared& p) { return Send(p, {Open(std::string(16, 's'))}); }},
      {"SequenceThatStandsStill",
       kInvalid,
       {"sequence", "5"},
       [](Prepared& p) {
         return Send(p, {Open(p.session), Batch(5, {GoodBatch(p)}), Batch(5, {GoodBatch(p)})});
       }},
      {"BatchOfNothing",
       kInvalid,
       {"empty", "at least one"},
       [](Prepared& p) {
         return Send(p, {Open(p.session), Batch(1, {})});
       }},
      {"BatchOfOpsAndAPlan",
       kInvalid,
       {"plan"},
       [](Prepared& p) {
         v1::QueueRequest both = Batch(1, {GoodBatch(p)});
         both.mutable_batch()->mutable_plan()->set_plan_id(std::string(16, 'p'));
         return Send(p, {Open(p.session), both});
       }},
      {"BatchOnAnUnknownBuffer",
       StatusCode::NOT_FOUND,
       {"buffer"},
       [](Prepared& p) {
         return Send(p, {Open(p.session), Batch(1, {FillOp(View(std::string(16, 'x'), {4}), 1)})});
       }},
      {"BatchOutOfBounds",
       kInvalid,
       {"4096"},
       [](Prepared& p) {
         return Send(p, {Open(p.session), Batch(1, {FillOp(View(p.d, {1025}), 1)})});
       }},
  };
}

}  // namespace gemmd::e2e
