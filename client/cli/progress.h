// A progress line on stderr for transfers that take long.

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "client/cli/args/output.h"

namespace gemmd::cli {

// For TransferOptions.progress. Silent with --quiet, when stderr is no terminal, and for the first
// half second: a bar that flashes by is noise. The line is wiped when the transfer is done.
std::function<void(int64_t done_bytes, int64_t total_bytes)> ProgressLine(const Output& out,
                                                                          std::string label);

}  // namespace gemmd::cli
