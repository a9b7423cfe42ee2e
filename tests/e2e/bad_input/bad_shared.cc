// Inline data in memory that a request names: Write.from, Read.to, PlanRun.inline_at.

#include <functional>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

using grpc::StatusCode;

constexpr int64_t kShared = 4096;

// What `send` returns, given a HOST_SHARED buffer that is gone afterwards.
grpc::Status WithShared(Prepared& p, const std::function<grpc::Status(const std::string&)>& send) {
  v1::CreateBufferRequest create;
  create.set_session_id(p.session);
  create.set_size_bytes(kShared);
  create.set_memory_kind(v1::MEMORY_KIND_HOST_SHARED);
  v1::Buffer buffer;
  grpc::ClientContext creating;
  const grpc::Status made = p.wire.buffers().CreateBuffer(&creating, create, &buffer);
  if (!made.ok()) return {StatusCode::UNKNOWN, "CreateBuffer: " + made.error_message()};
  grpc::Status status = send(buffer.buffer_id());
  v1::DeleteBuffersRequest drop;
  drop.set_session_id(p.session);
  drop.add_buffer_ids(buffer.buffer_id());
  v1::DeleteBuffersResponse dropped;
  grpc::ClientContext dropping;
  const grpc::Status gone = p.wire.buffers().DeleteBuffers(&dropping, drop, &dropped);
  if (!gone.ok()) return {StatusCode::UNKNOWN, "DeleteBuffers: " + gone.error_message()};
  return status;
}

void Set(v1::SharedBytes* place, const std::string& buffer, int64_t offset_bytes) {
  place->set_buffer_id(buffer);
  place->set_offset_bytes(offset_bytes);
}

// 64 bytes.
v1::Op WriteFrom(Prepared& p, const std::string& buffer, int64_t offset_bytes) {
  v1::Op op = WriteOp(View(p.a, {4, 4}), "");
  Set(op.mutable_write()->mutable_from(), buffer, offset_bytes);
  return op;
}

v1::Op ReadTo(Prepared& p, const std::string& buffer, int64_t offset_bytes) {
  v1::Op op = ReadOp(View(p.a, {4, 4}));
  Set(op.mutable_read()->mutable_to(), buffer, offset_bytes);
  return op;
}

// A run of a plan that writes 64 bytes and reads them twice, with such places.
grpc::Status RunAt(Prepared& p, const std::string& buffer, const std::vector<int64_t>& offsets) {
  const v1::Tensor all = View(p.a, {4, 4});
  return RunPlan(p, {WriteOp(all, std::string(64, 'x')), ReadOp(all), ReadOp(all)},
                 [&](v1::PlanRun& run) {
                   for (const int64_t at : offsets) Set(run.add_inline_at(), buffer, at);
                 });
}

}  // namespace

std::vector<BadInput> BadShared() {
  constexpr StatusCode kInvalid = StatusCode::INVALID_ARGUMENT;
  return {
      {"FromDeviceMemory",
       kInvalid,
       {"ops[0].write.from", "MEMORY_KIND_HOST_SHARED"},
       [](auto& p) { return p.wire.Execute(p.session, {WriteFrom(p, p.b, 0)}); }},
      {"ToDeviceMemory",
       kInvalid,
       {"ops[0].read.to", "MEMORY_KIND_HOST_SHARED"},
       [](auto& p) { return p.wire.Execute(p.session, {ReadTo(p, p.b, 0)}); }},
      {"FromNoHandle",
       kInvalid,
       {"ops[0].write.from", "5 bytes, not 16"},
       [](auto& p) { return p.wire.Execute(p.session, {WriteFrom(p, "short", 0)}); }},
      {"FromUnknownBuffer",
       StatusCode::NOT_FOUND,
       {"ops[0].write.from"},
       [](auto& p) { return p.wire.Execute(p.session, {WriteFrom(p, std::string(16, 'q'), 0)}); }},
      {"DataAndFrom",
       kInvalid,
       {"ops[0].write", "data and from", "leave one out"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& shared) {
           v1::Op both = WriteFrom(p, shared, 0);
           both.mutable_write()->set_data(std::string(64, 'x'));
           return p.wire.Execute(p.session, {both});
         });
       }},
      {"FromBetweenElements",
       kInvalid,
       {"offset_bytes=6", "4-byte element"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& shared) {
           return p.wire.Execute(p.session, {WriteFrom(p, shared, 6)});
         });
       }},
      {"FromBeforeTheBuffer",
       kInvalid,
       {"offset_bytes=-4"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& shared) {
           return p.wire.Execute(p.session, {WriteFrom(p, shared, -4)});
         });
       }},
      {"FromBeyondTheBuffer",
       kInvalid,
       {"4096"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& shared) {
           return p.wire.Execute(p.session, {WriteFrom(p, shared, kShared - 60)});
         });
       }},
      {"ToBeyondAllMemory",
       kInvalid,
       {"op 0"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& shared) {
           return p.wire.Execute(p.session, {ReadTo(p, shared, INT64_MAX - 3)});
         });
       }},
      {"APlansOwnOpNamesMemory",
       kInvalid,
       {"ops[0].write", "PlanRun.inline_at"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& shared) {
           v1::CreatePlanRequest create;
           create.set_session_id(p.session);
           *create.add_ops() = WriteFrom(p, shared, 0);
           v1::Plan plan;
           grpc::ClientContext context;
           return p.wire.compute().CreatePlan(&context, create, &plan);
         });
       }},
      {"TooFewPlaces",
       kInvalid,
       {"0 inputs and 2 places", "3 Write and Read ops"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& s) { return RunAt(p, s, {0, 64}); });
       }},
      {"PlacesOfAPlanWithoutInlineData",
       kInvalid,
       {"1 places", "0 Write and Read ops"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& shared) {
           return RunPlan(p, {FillOp(View(p.d, {4, 4}), 1)},
                          [&](v1::PlanRun& run) { Set(run.add_inline_at(), shared, 0); });
         });
       }},
      {"PlacesAndInputs",
       kInvalid,
       {"1 inputs and 1 places"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& shared) {
           return RunPlan(p, {WriteOp(View(p.a, {4, 4}), std::string(64, 'x'))},
                          [&](v1::PlanRun& run) {
                            run.add_inputs(std::string(64, 'x'));
                            Set(run.add_inline_at(), shared, 0);
                          });
         });
       }},
      {"PlacesInDeviceMemory",
       kInvalid,
       {"inline_at[0]", "MEMORY_KIND_HOST_SHARED"},
       [](auto& p) {
         return RunAt(p, p.b, {0, 64, 128});
       }},
      {"PlacesInAnUnknownBuffer",
       StatusCode::NOT_FOUND,
       {"buffer"},
       [](auto& p) {
         return RunAt(p, std::string(16, 'q'), {0, 64, 128});
       }},
      {"APlaceBeyondTheBuffer",
       kInvalid,
       {"inline_at[2]", "64 bytes", "4096"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& s) {
           return RunAt(p, s, {0, 64, kShared - 60});
         });
       }},
      {"APlaceBeyondAllMemory",
       kInvalid,
       {"inline_at[0]", "4096"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& s) {
           return RunAt(p, s, {INT64_MAX - 3, 64, 128});
         });
       }},
      {"ReadsIntoOnePlace",
       kInvalid,
       {"inline_at", "offset_bytes=120", "place of its own"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& s) { return RunAt(p, s, {0, 64, 120}); });
       }},
      {"AReadOverAWritesBytes",
       kInvalid,
       {"inline_at", "place of its own"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& s) { return RunAt(p, s, {64, 0, 64}); });
       }},
      {"APlaceInABufferOfThePlan",
       kInvalid,
       {"inline_at[0]", "the plan runs on"},
       [](auto& p) {
         return WithShared(p, [&](const std::string& shared) {
           return RunPlan(p, {WriteOp(View(shared, {4, 4}), std::string(64, 'x'))},
                          [&](v1::PlanRun& run) { Set(run.add_inline_at(), shared, 1024); });
         });
       }},
  };
}

}  // namespace gemmd::e2e
