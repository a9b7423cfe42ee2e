// The suites `serving` and `soak` of `gemmctl bench`, from flags to the printed table.

#ifndef GEMMD_CLIENT_CLI_SERVING_RUN_H_
#define GEMMD_CLIENT_CLI_SERVING_RUN_H_

#include "absl/status/status.h"
#include "client/cli/args/command.h"

namespace gemmd::cli {

// A figure that falls short is shown, not an error.
absl::Status RunServingSuite(Invocation& call);

// kCheckFailed when the daemon has grown.
absl::Status RunSoakSuite(Invocation& call);

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_SERVING_RUN_H_
