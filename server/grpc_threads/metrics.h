// gemmd_busy_poll_seconds_total and gemmd_busy_poll_found_total, read at each scrape.

#pragma once

#include "server/engine/observe/exposition.h"

namespace gemmd::grpc_threads {

void ReadBusyPolled(server::Families& families);

}  // namespace gemmd::grpc_threads
