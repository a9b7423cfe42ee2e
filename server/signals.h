// SIGTERM, SIGINT and SIGHUP, taken by the main thread when it asks for them.

#pragma once

#include <signal.h>

#include "absl/time/time.h"

namespace gemmd::server {

class Signals {
 public:
  // Once, on the main thread, before the process starts any other: those inherit what is blocked.
  Signals();

  // The next of the three, or 0 when none has come within `timeout`.
  int Next(absl::Duration timeout) const;

 private:
  sigset_t set_;
};

}  // namespace gemmd::server
