#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/resident.h"
#include "bench/serving/pump.h"
#include "bench/serving/suite.h"

namespace gemmd::bench {
namespace {

// A client of its own on one device, with work of its own.
struct Seat {
  client::Client client;
  client::Session session;
  ResidentMatmul matmul;
  client::OpList ops;
};

absl::StatusOr<std::unique_ptr<Seat>> TakeSeat(const Serving& serving, const std::string& device) {
  auto seat = std::make_unique<Seat>();
  absl::StatusOr<client::Client> client = client::Client::Connect(serving.target, serving.options);
  if (!client.ok()) return client.status();
  seat->client = *std::move(client);
  absl::StatusOr<client::Session> session =
      seat->client.OpenSession({.label = "gemmd_bench devices", .device = device});
  if (!session.ok()) return session.status();
  seat->session = *std::move(session);
  absl::StatusOr<ResidentMatmul> matmul =
      MakeResident(seat->session, Fp8Spec(serving.sizes.queued));
  if (!matmul.ok()) return matmul.status();
  seat->matmul = *std::move(matmul);
  seat->ops = seat->matmul.Repeated(serving.sizes.queued_ops);
  return seat;
}

// Batches a second of all the seats together, each with its queue full.
absl::StatusOr<double> Rate(const Serving& serving,
                            const std::vector<std::unique_ptr<Seat>>& seats) {
  std::vector<std::unique_ptr<Pump>> pumps;
  for (const auto& seat : seats) {
    absl::StatusOr<std::unique_ptr<Pump>> pump = Pump::Start(seat->session, seat->ops);
    if (!pump.ok()) return pump.status();
    pumps.push_back(*std::move(pump));
  }
  const auto completed = [&] {
    int64_t sum = 0;
    for (const auto& pump : pumps) sum += pump->count().batches;
    return sum;
  };
  absl::SleepFor(serving.sizes.warm_up);
  const int64_t before = completed();
  const absl::Time start = absl::Now();
  absl::SleepFor(serving.sizes.duration);
  const int64_t after = completed();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (const auto& pump : pumps) {
    if (absl::Status status = pump->status(); !status.ok()) return status;
  }
  return static_cast<double>(after - before) / seconds;
}

absl::Status Measure(const Serving& serving, Figure& figure) {
  std::vector<std::unique_ptr<Seat>> seats;
  std::vector<double> rates;
  for (const std::string& device : {serving.device, serving.other_device}) {
    absl::StatusOr<std::unique_ptr<Seat>> seat = TakeSeat(serving, device);
    if (!seat.ok()) return seat.status();
    seats.push_back(*std::move(seat));
    absl::StatusOr<double> rate = Rate(serving, seats);
    if (!rate.ok()) return rate.status();
    rates.push_back(*rate);
  }
  if (rates[0] <= 0) return absl::InternalError("one client completed nothing");
  figure.seen = rates[1] / rates[0];
  figure.detail = {{"messages_per_second_of_one", rates[0]},
                   {"messages_per_second_of_two", rates[1]},
                   {"devices", {serving.device, serving.other_device}}};
  return absl::OkStatus();
}

}  // namespace

std::vector<Figure> MeasureDevices(const Serving& serving) {
  Figure figure = {.key = "two_devices_over_one",
                   .what = "work done by two clients on two devices over that of one on one",
                   .wanted = 1.95};
  if (serving.other_device.empty()) {
    return {Missing(figure, NoSecondDevice(serving))};
  }
  if (absl::Status status = Measure(serving, figure); !status.ok()) {
    return {Missing(figure, status)};
  }
  return {figure};
}

}  // namespace gemmd::bench
