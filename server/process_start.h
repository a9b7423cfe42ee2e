// What the process makes sure of before it does anything else.

#pragma once

#include "absl/status/status.h"

namespace gemmd::server {

// Puts /dev/null where 0, 1 or 2 is closed: the next socket would get that number, and whoever is
// at its other end what is meant for stderr. By system calls alone: it runs before libraries do.
__attribute__((no_sanitize("address", "undefined"))) void OpenStandardDescriptors();

// An exception that nobody catches, such as a thread or memory that is refused later on, ends the
// process with a line that says so, and exit status 1.
void ExplainUncaughtExceptions();

// Whether the limits let it have the address space and threads that it takes; else
// RESOURCE_EXHAUSTED, with the limits. Its libraries would abort, some without a word.
absl::Status CheckRoom();

}  // namespace gemmd::server
