// TakeInlineData: a request's inline data, found where gRPC received it, and the rest of the
// request. Protobuf would copy the data out of gRPC's memory first, half a megabyte in 70 us; so it
// goes from there to pinned memory at once. And without its data a program that comes again is the
// same bytes again (engine/sessions/recent_programs.h).

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "server/engine/scheduling/run.h"

namespace gemmd::server {

struct InlineData {
  // The request's message with eight bytes, its size, in the place of each data.
  std::string rest;
  Inputs data;              // in order; an ExecuteRequest's i-th is its i-th Write op's
  grpc::ByteBuffer memory;  // what `data` points into
};

// The data of Write ops in an ExecuteRequest, of the plan's inputs in a RunPlanRequest. Takes
// `request`'s memory; null, and leaves it, when protobuf had better read it: it is malformed, or a
// Write op is not one field with one data in it.
std::shared_ptr<InlineData> TakeExecuteData(grpc::ByteBuffer& request);
std::shared_ptr<InlineData> TakeRunPlanData(grpc::ByteBuffer& request);

}  // namespace gemmd::server
