#include "bench/serving/soak.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/serving/daemon_process.h"
#include "bench/serving/soak_worker.h"
#include "gemmd/v1/device_service.pb.h"

namespace gemmd::bench {
namespace {

constexpr int kLooks = 5;
// Resident memory that comes and goes with the allocator's arenas: each thread's keeps what was
// freed in it. Of a daemon with a GPU it is less than the 3 % that are allowed anyway.
constexpr double kArenaBytes = 8 << 20;

struct SoakSeat {
  client::Client client;
  std::unique_ptr<SoakWorker> worker;  // on that client
};

// Until the seats together have run `ops` more.
absl::Status RunOps(std::vector<SoakSeat>& seats, int64_t ops) {
  std::atomic<int64_t> left = ops;
  std::mutex mutex;
  absl::Status failed;
  std::vector<std::thread> threads;
  for (SoakSeat& seat : seats) {
    threads.emplace_back([&] {
      absl::Status status;
      while (status.ok() && left > 0) {
        const absl::StatusOr<int64_t> done = seat.worker->Step();
        status = done.status();
        if (done.ok()) left -= *done;
      }
      status.Update(seat.worker->Close());
      if (status.ok()) return;
      left = 0;
      std::lock_guard lock(mutex);
      failed.Update(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failed;
}

struct Held {
  ProcessUse process;
  int64_t buffer_bytes = 0;         // by the daemon's account
  int64_t device_memory_bytes = 0;  // by the driver's; 0: it does not tell
  int64_t pinned_bytes = 0;         // 0: of a CPU
};

absl::StatusOr<Held> Look(client::Client& client, const SoakSpec& spec, pid_t pid) {
  Held held;
  const absl::Time limit = absl::Now() + absl::Seconds(5);
  // Closing a session is answered when its memory is free; the rest settles in a moment: streams
  // that end, a reading of the driver's that is a quarter of a second old.
  absl::SleepFor(absl::Milliseconds(500));
  do {
    absl::StatusOr<std::vector<v1::Device>> devices = client.ListDevices();
    if (!devices.ok()) return devices.status();
    for (const v1::Device& device : *devices) {
      if (device.name() != spec.device) continue;
      held.buffer_bytes = device.used_bytes();
      held.device_memory_bytes = device.sensors().memory_used_bytes();
      held.pinned_bytes = device.pinned_bytes();
    }
    if (held.buffer_bytes == 0) break;
    absl::SleepFor(absl::Milliseconds(20));
  } while (absl::Now() < limit);
  absl::StatusOr<ProcessUse> use = UseOf(pid);
  if (!use.ok()) return use.status();
  held.process = *use;
  return held;
}

// The last of `looks` over the second.
Figure Growth(const char* key, const char* what, double allowed, const std::vector<Held>& looks,
              const std::function<int64_t(const Held&)>& value) {
  Figure figure = {.key = key, .what = what, .wanted = allowed, .at_most = true};
  cli::Json series = cli::Json::array();
  for (const Held& look : looks) series.push_back(value(look));
  figure.detail = {{"looks", series}};
  const auto early = static_cast<double>(value(looks[1]));
  if (early > 0) {
    figure.seen = static_cast<double>(value(looks.back())) / early;
  } else {
    figure.missing = "the daemon's device has none, or does not tell";
  }
  return figure;
}

}  // namespace

absl::StatusOr<std::vector<Figure>> MeasureSoak(
    client::Client& client, const SoakSpec& spec,
    const std::function<void(const std::string&)>& announce) {
  absl::StatusOr<pid_t> pid = ListenerOf(spec.share_socket);
  if (!pid.ok()) return pid.status();
  std::vector<SoakSeat> seats(spec.workers);
  for (int i = 0; i < spec.workers; ++i) {
    absl::StatusOr<client::Client> connected = client::Client::Connect(spec.target, spec.options);
    if (!connected.ok()) return connected.status();
    seats[i].client = *std::move(connected);
    seats[i].worker = std::make_unique<SoakWorker>(seats[i].client, spec.device, i + 1);
  }
  std::vector<Held> looks;
  const absl::Time start = absl::Now();
  for (int fifth = 1; fifth <= kLooks; ++fifth) {
    announce(absl::StrCat(spec.ops * fifth / kLooks, " of ", spec.ops, " ops"));
    absl::Status status = RunOps(seats, spec.ops / kLooks);
    if (!status.ok()) return status;
    absl::StatusOr<Held> look = Look(client, spec, *pid);
    if (!look.ok()) return look.status();
    looks.push_back(*look);
  }
  const Held& last = looks.back();
  Figure left = {.key = "soak_buffer_bytes_left",
                 .what = "bytes of buffers that are left once every session is closed",
                 .unit = "B",
                 .wanted = 0,
                 .at_most = true,
                 .seen = static_cast<double>(last.buffer_bytes)};
  left.detail = {{"ops", spec.ops},
                 {"seconds", absl::ToDoubleSeconds(absl::Now() - start)},
                 {"daemon_cpu_seconds", last.process.cpu_seconds}};
  const double resident_allowed =
      1 + std::max(0.03, kArenaBytes / static_cast<double>(looks[1].process.resident_bytes));
  const auto resident = [](const Held& held) { return held.process.resident_bytes; };
  const auto descriptors = [](const Held& held) { return held.process.descriptors; };
  const auto threads = [](const Held& held) { return held.process.threads; };
  const auto device = [](const Held& held) { return held.device_memory_bytes; };
  const auto pinned = [](const Held& held) { return held.pinned_bytes; };
  return std::vector<Figure>{
      left,
      Growth("soak_resident_growth",
             "the daemon's resident memory, at the end over after two fifths", resident_allowed,
             looks, resident),
      Growth("soak_descriptor_growth", "its open descriptors", 1.1, looks, descriptors),
      Growth("soak_thread_growth", "its threads", 1.25, looks, threads),
      Growth("soak_device_memory_growth", "memory in use on the device, as its driver counts it",
             1.01, looks, device),
      Growth("soak_pinned_growth", "host memory that the daemon holds pinned for the device", 1.1,
             looks, pinned)};
}

}  // namespace gemmd::bench
