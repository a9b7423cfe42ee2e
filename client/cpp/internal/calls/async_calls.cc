#include "client/cpp/internal/calls/async_calls.h"

#include <thread>

namespace gemmd::client {

AsyncCalls& AsyncCalls::Get() {
  static AsyncCalls& calls = *new AsyncCalls;
  return calls;
}

AsyncCalls::AsyncCalls() {
  std::thread([this] { Work(); }).detach();
}

void AsyncCalls::Begin() {
  absl::MutexLock lock(&mu_);
  ++under_way_;
}

void AsyncCalls::Work() {
  for (;;) {
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(
          +[](int64_t* under_way) { return *under_way > 0; }, &under_way_));
    }
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok)) return;  // never: nobody shuts it down
    {
      absl::MutexLock lock(&mu_);
      --under_way_;
    }
    static_cast<AsyncStep*>(tag)->Done(ok);
  }
}

}  // namespace gemmd::client
