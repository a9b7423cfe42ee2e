// DeviceProcesses: a gemmd for each device, each a process of its own, kept running. A sticky CUDA
// error makes every CUDA call of its process fail, those for other GPUs too; a GPU in a process of
// its own faults alone. The process that keeps them makes no CUDA call itself.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/child_process.h"
#include "server/engine/observe/log.h"
#include "server/supervisor.h"

namespace gemmd::server {

// Not thread-safe; on the main thread.
class DeviceProcesses {
 public:
  struct Device {
    std::string name;
    std::vector<std::string> command;  // of its process
  };
  // `ready_file`: "" for none.
  DeviceProcesses(std::vector<Device> devices, std::string ready_file, Log& log);

  // Starts what is due and takes note of what serves or has ended. To be called every now and then,
  // until it gives the exit status: then none is left.
  std::optional<int> Watch();
  // Passes a signal on. After SIGTERM and SIGINT none is started again; a second one ends them
  // without delay.
  void Signal(int number);
  // What those start with that are started from here on, by device. Before the first Watch.
  void SetConfigs(std::vector<std::string> configs);

 private:
  struct Slot {
    Device device;
    std::string config;
    std::optional<ChildProcess> process;
    std::string ready;  // what it last said of its addresses
  };
  void PassOn(int number);
  void Start(size_t index);
  void Look(size_t index);
  void NoteReady(size_t index, std::string text);
  void NoteEnd(size_t index, const ChildEnd& end);
  // Tells the service manager, too. The first file must be written, or those who wait for it wait
  // in vain.
  void WriteReady();

  Log& log_;
  const std::string ready_file_;
  bool ready_written_ = false;
  // Told twice to stop. A process that has yet to take its first signal would take both for one, so
  // it is told again until it has ended.
  bool hurried_ = false;
  std::vector<Slot> slots_;
  Supervisor supervisor_;
};

}  // namespace gemmd::server
