// gemmd_connections and its like, read at each scrape.

#pragma once

#include "server/engine/observe/exposition.h"
#include "server/guard/connections.h"

namespace gemmd::guard {

void ReadConnections(const Connections& connections, server::Families& families);

}  // namespace gemmd::guard
