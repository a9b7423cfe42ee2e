// `gemmd_bench serving` and `gemmd_bench soak`, from flags to the printed table.

#pragma once

#include "absl/status/status.h"
#include "client/cli/args/command.h"

namespace gemmd::bench {

// A figure that falls short is shown, not an error.
absl::Status RunServingSuite(cli::Invocation& call);

// kCheckFailed when the daemon has grown.
absl::Status RunSoakSuite(cli::Invocation& call);

}  // namespace gemmd::bench
