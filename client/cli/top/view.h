// What `gemmctl top` prints of a TopLoad.

#pragma once

#include "client/cli/args/output.h"
#include "client/cli/args/page.h"
#include "client/cli/top/sample.h"

namespace gemmd::cli {

// At most `max_sessions` of the sessions; the rest as a number.
Page TopPage(const TopSample& sample, const TopLoad& load, size_t max_sessions);
Json TopJson(const TopSample& sample, const TopLoad& load);

}  // namespace gemmd::cli
