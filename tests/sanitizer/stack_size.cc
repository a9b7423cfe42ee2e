// Gives every thread at least a mebibyte of stack. The library behind the metrics endpoint asks for
// 100 KiB, which AddressSanitizer's interceptors alone overrun. Linked into every binary of the
// preset asan and nothing else.

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>

extern "C" int pthread_attr_setstacksize(pthread_attr_t* attributes, size_t size) noexcept {
  using Function = int(pthread_attr_t*, size_t);
  static auto* next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "pthread_attr_setstacksize"));
  return next(attributes, std::max<size_t>(size, 1 << 20));
}
