#include "server/grpc_threads/metrics.h"

#include "server/grpc_threads/grpc_threads.h"

namespace gemmd::grpc_threads {

void ReadBusyPolled(server::Families& families) {
  const Polled polled = BusyPolled();
  families
      .Counter("gemmd_busy_poll_seconds_total",
               "Seconds that a thread looked for bytes of connections instead of sleeping.")
      .Add({}, polled.seconds);
  families.AddCounter("gemmd_busy_poll_found_total", "Times that bytes came meanwhile.",
                      polled.found);
}

}  // namespace gemmd::grpc_threads
