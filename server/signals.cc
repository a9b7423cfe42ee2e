#include "server/signals.h"

#include <pthread.h>

namespace gemmd::server {
namespace {

pthread_t main_thread;

// Runs on threads that are older than main() only, where nothing is blocked: OpenBLAS starts one as
// it is loaded. Without a handler, a signal that the kernel gives to such a thread ends the process
// instead of draining it.
void HandToMain(int signal) { pthread_kill(main_thread, signal); }

}  // namespace

Signals::Signals() {
  main_thread = pthread_self();
  struct sigaction action = {};
  action.sa_handler = HandToMain;
  action.sa_flags = SA_RESTART;
  sigemptyset(&set_);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, signal);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaction(signal, &action, nullptr);
}

int Signals::Next(absl::Duration timeout) const {
  const timespec limit = absl::ToTimespec(timeout);
  const int signal = sigtimedwait(&set_, nullptr, &limit);
  return signal < 0 ? 0 : signal;
}

}  // namespace gemmd::server
