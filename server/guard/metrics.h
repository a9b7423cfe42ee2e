// gemmd_connections and its like, read at each scrape.

#ifndef GEMMD_SERVER_GUARD_METRICS_H_
#define GEMMD_SERVER_GUARD_METRICS_H_

#include "server/engine/observe/exposition.h"
#include "server/guard/connections.h"

namespace gemmd::guard {

void ReadConnections(const Connections& connections, server::Families& families);

}  // namespace gemmd::guard

#endif  // GEMMD_SERVER_GUARD_METRICS_H_
