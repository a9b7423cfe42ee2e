// A leak on purpose, in the build that shows that the soak finds one (tests/soak): some memory and
// now and then a descriptor with each session. Everywhere else it is nothing.

#pragma once

#ifdef GEMMD_PLANTED_LEAK
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#endif

namespace gemmd::server {

inline void PlantedLeak() {
#ifdef GEMMD_PLANTED_LEAK
  constexpr size_t kBytes = 32 << 10;
  static void* volatile lost;  // volatile: or the compiler saw that nobody looks, and left it out
  lost = std::malloc(kBytes);
  if (lost != nullptr) std::memset(lost, 1, kBytes);
  static int sessions = 0;
  if (++sessions % 4 == 0) (void)dup(STDERR_FILENO);
#endif
}

}  // namespace gemmd::server
