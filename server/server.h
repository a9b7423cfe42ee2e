// Server: the daemon, whole. Owns everything in construction order; main.cc drives it by signals.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
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
  virtual ~Server() = default;

  virtual std::vector<std::string> addresses() const = 0;  // of the listeners, ports filled in
  virtual std::string metrics_address() const = 0;         // empty when none

  // Takes what may change from `next`. FAILED_PRECONDITION names what may not, and then nothing has
  // changed.
  virtual absl::Status Reload(const Config& next) = 0;
  // A config that could not even be read: the one in use stays.
  virtual void NoteInvalidReload(const absl::Status& why) = 0;

  // Looks for devices that have faulted: turns their health off, and logs. Returns how many still
  // serve. To be called every now and then until Drain, by the same thread.
  virtual int WatchDevices() = 0;

  // Turns health off, keeps working for the notice, then takes no new work, answers what was
  // accepted, and stops. Bounded by the config's notice and limit. `interrupted` is asked now and
  // then; true forces the end at once. Returns whether everything accepted was answered.
  virtual bool Drain(absl::FunctionRef<bool()> interrupted) = 0;
};

}  // namespace gemmd::server
