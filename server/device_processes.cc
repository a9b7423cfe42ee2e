#include "server/device_processes.h"

#include <signal.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/exit_status.h"
#include "server/ready_file.h"
#include "server/service_manager.h"

namespace gemmd::server {

DeviceProcesses::DeviceProcesses(std::vector<Device> devices, std::string ready_file, Log& log)
    : log_(log), ready_file_(std::move(ready_file)), supervisor_(devices.size()) {
  for (Device& device : devices) slots_.push_back({.device = std::move(device)});
}

std::optional<int> DeviceProcesses::Watch() {
  for (const size_t index : supervisor_.TakeDue(absl::Now())) Start(index);
  for (size_t i = 0; i < slots_.size(); ++i) Look(i);
  if (hurried_) PassOn(SIGTERM);
  return supervisor_.exit_status();
}

void DeviceProcesses::Signal(int number) {
  if (number == SIGTERM || number == SIGINT) {
    hurried_ = supervisor_.stopping();
    supervisor_.Stop();
  }
  PassOn(number);
}

void DeviceProcesses::SetConfigs(std::vector<std::string> configs) {
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].config = std::move(configs[i]);
}

void DeviceProcesses::PassOn(int number) {
  for (const Slot& slot : slots_) {
    if (slot.process) slot.process->Signal(number);
  }
}

void DeviceProcesses::Start(size_t index) {
  Slot& slot = slots_[index];
  auto process = ChildProcess::Start(slot.device.command, slot.config);
  if (!process.ok()) {
    log_.Error("child_not_started", {{"device", slot.device.name},
                                     {"message", std::string(process.status().message())}});
    return NoteEnd(index, {.status = kFailed});
  }
  slot.process = *std::move(process);
  log_.Info("child_started", {{"device", slot.device.name}, {"pid", slot.process->pid()}});
}

void DeviceProcesses::Look(size_t index) {
  Slot& slot = slots_[index];
  if (!slot.process) return;
  // The end first: all that was written before it can be read then.
  const std::optional<ChildEnd> end = slot.process->TakeEnd();
  if (std::optional<std::string> text = slot.process->TakeReady()) {
    NoteReady(index, *std::move(text));
  }
  if (end) NoteEnd(index, *end);
}

void DeviceProcesses::NoteReady(size_t index, std::string text) {
  Slot& slot = slots_[index];
  slot.ready = std::move(text);
  supervisor_.Ready(index, absl::Now());
  log_.Info("child_serving", {{"device", slot.device.name}, {"pid", slot.process->pid()}});
  WriteReady();
}

void DeviceProcesses::NoteEnd(size_t index, const ChildEnd& end) {
  Slot& slot = slots_[index];
  const bool was_stopping = supervisor_.stopping();
  const absl::Duration delay = supervisor_.Ended(index, end, absl::Now());
  const int64_t pid = slot.process ? slot.process->pid() : 0;
  slot.process.reset();
  std::vector<LogField> fields = {{"device", slot.device.name}, {"pid", pid}};
  if (end.signal != 0) {
    fields.emplace_back("signal", end.signal);
  } else {
    fields.emplace_back("status", end.status);
  }
  if (delay != absl::InfiniteDuration()) {
    fields.emplace_back("restart_in_ms", absl::ToInt64Milliseconds(delay));
  }
  log_.Write(was_stopping ? LogLevel::kInfo : LogLevel::kError, "child_ended", fields);
  if (!was_stopping && supervisor_.stopping()) PassOn(SIGTERM);
}

void DeviceProcesses::WriteReady() {
  if (supervisor_.stopping() || !supervisor_.all_serve()) return;
  if (absl::Status told = TellServiceManager(kServing); !told.ok()) {
    log_.Warning("service_manager_not_told", {{"message", std::string(told.message())}});
  }
  if (ready_file_.empty()) return;
  std::string text;
  for (const Slot& slot : slots_) {
    absl::StrAppend(&text, "device ", slot.device.name, "\n", slot.ready);
  }
  const absl::Status written = WriteReadyFile(ready_file_, text);
  if (written.ok()) {
    ready_written_ = true;
    return;
  }
  log_.Error("ready_file_not_written", {{"message", std::string(written.message())}});
  if (ready_written_) return;
  supervisor_.Fail(kFailed);
  PassOn(SIGTERM);
}

}  // namespace gemmd::server
