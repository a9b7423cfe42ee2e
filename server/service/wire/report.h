// What a program's answer says of it: which kernels ran, why, and how long.

#pragma once

#include <google/protobuf/io/coded_stream.h>

#include "gemmd/v1/types.pb.h"
#include "server/engine/sessions/replay.h"

namespace gemmd::server {

void FillReport(const Outcome& outcome, v1::ReportLevel level, v1::ProgramReport* report);

// The same as the message field `field`, written at once: for a plan of five hundred ops messages
// take 55 us to make and encode, of an answer that its caller waits for.
void WriteReport(const Outcome& outcome, v1::ReportLevel level, int field,
                 google::protobuf::io::CodedOutputStream& out);

}  // namespace gemmd::server
