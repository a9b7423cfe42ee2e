// Server: the daemon, whole. Owns everything in construction order; main.cc drives it by signals.

#ifndef GEMMD_SERVER_SERVER_H_
#define GEMMD_SERVER_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/config.h"

namespace gemmd::server {

class Server {
 public:
  // Whether the files that a config names, of tokens and of certificates, are right, and whether
  // the kernels that it disables exist.
  static absl::Status CheckFiles(const Config& config);

  // What starts and goes wrong later, a sentence each: a certificate whose time is over, a CPU
  // device with more memory than there is.
  static std::vector<std::string> Warnings(const Config& config);

  // Whether this machine has a config's devices and their tuning tables. What they can do is asked
  // at the start.
  static absl::Status CheckDevices(const Config& config);

  // Builds the devices and starts every listener. On an error nothing is left listening.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Config& config);
  ~Server();

  std::vector<std::string> addresses() const;  // of the listeners, ports filled in
  std::string metrics_address() const;         // empty when none

  // Takes what may change from `next`. FAILED_PRECONDITION names what may not, and then nothing has
  // changed.
  absl::Status Reload(const Config& next);
  // A config that could not even be read: the one in use stays.
  void NoteInvalidReload(const absl::Status& why);

  // Looks for devices that have faulted: turns their health off, and logs. Returns how many still
  // serve. To be called every now and then until Drain, by the same thread.
  int WatchDevices();

  // Turns health off, keeps working for the notice, then takes no new work, answers what was
  // accepted, and stops. Bounded by the config's notice and limit. `interrupted` is asked now and
  // then; true forces the end at once. Returns whether everything accepted was answered.
  bool Drain(absl::FunctionRef<bool()> interrupted);

  class Impl;

 private:
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVER_H_
