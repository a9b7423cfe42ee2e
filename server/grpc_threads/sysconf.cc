#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "server/grpc_threads/environment.h"
#include "server/grpc_threads/grpc_threads.h"

// Not const, whose value the compiler would take from here.
__attribute__((weak)) int gemmd_default_grpc_threads = 0;

namespace gemmd::grpc_threads {
namespace {

constexpr int64_t kMostThreads = 16;

// Whether the code at `address` is gRPC's.
bool IsGrpc(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
  const std::string_view path = info.dli_fname;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  return file.starts_with("libgpr.") || file.starts_with("cygrpc.");
}

}  // namespace

long ProcessorsForGrpc(long processors) {
  if (std::getenv(kThreadsVariable) != nullptr) {
    const int64_t threads = std::min(FromEnvironment(kThreadsVariable), kMostThreads);
    return threads > 0 ? 2 * threads : processors;
  }
  const int threads = gemmd_default_grpc_threads;
  return threads > 0 ? std::min<long>(processors, 2 * threads) : processors;
}

}  // namespace gemmd::grpc_threads

extern "C" __attribute__((visibility("default"))) long sysconf(int name) noexcept {
  using namespace gemmd::grpc_threads;
  static const auto next = reinterpret_cast<long (*)(int)>(dlsym(RTLD_NEXT, "sysconf"));
  const long answer = next(name);
  const bool asked = name == _SC_NPROCESSORS_CONF && IsGrpc(__builtin_return_address(0));
  return asked ? ProcessorsForGrpc(answer) : answer;
}
