// gemmd_busy_poll_seconds_total and gemmd_busy_poll_found_total, read at each scrape.

#ifndef GEMMD_SERVER_GRPC_THREADS_METRICS_H_
#define GEMMD_SERVER_GRPC_THREADS_METRICS_H_

#include "server/engine/observe/exposition.h"

namespace gemmd::grpc_threads {

void ReadBusyPolled(server::Families& families);

}  // namespace gemmd::grpc_threads

#endif  // GEMMD_SERVER_GRPC_THREADS_METRICS_H_
