#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/resident.h"
#include "bench/serving/pump.h"
#include "bench/serving/suite.h"

namespace gemmd::bench {
namespace {

// A client of its own on one device, with work of its own.
struct DeviceSeat {
  client::Client client;
  client::Session session;
  ResidentMatmul matmul;
  client::OpList ops;
};

absl::StatusOr<std::unique_ptr<DeviceSeat>> TakeSeat(const Serving& serving,
                                                     const std::string& device) {
  auto seat = std::make_unique<DeviceSeat>();
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

// Batches a second of each seat, all at work at once with their queues full.
absl::StatusOr<std::vector<double>> Rates(const Serving& serving,
                                          absl::Span<const std::unique_ptr<DeviceSeat>> seats) {
  std::vector<std::unique_ptr<Pump>> pumps;
  for (const auto& seat : seats) {
    absl::StatusOr<std::unique_ptr<Pump>> pump = Pump::Start(seat->session, seat->ops);
    if (!pump.ok()) return pump.status();
    pumps.push_back(*std::move(pump));
  }
  absl::SleepFor(serving.sizes.warm_up);
  std::vector<double> rates;
  for (const auto& pump : pumps) rates.push_back(-static_cast<double>(pump->count().batches));
  const absl::Time start = absl::Now();
  absl::SleepFor(serving.sizes.duration);
  for (size_t i = 0; i < pumps.size(); ++i) {
    rates[i] += static_cast<double>(pumps[i]->count().batches);
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (double& rate : rates) rate /= seconds;
  for (const auto& pump : pumps) {
    if (absl::Status status = pump->status(); !status.ok()) return status;
  }
  return rates;
}

absl::Status Measure(const Serving& serving, Figure& sum, Figure& each) {
  std::vector<std::unique_ptr<DeviceSeat>> seats;
  std::vector<double> alone;
  std::vector<std::string> devices = {serving.device};
  devices.insert(devices.end(), serving.other_devices.begin(), serving.other_devices.end());
  for (const std::string& device : devices) {
    absl::StatusOr<std::unique_ptr<DeviceSeat>> seat = TakeSeat(serving, device);
    if (!seat.ok()) return seat.status();
    seats.push_back(*std::move(seat));
    auto rate = Rates(serving, absl::MakeConstSpan(seats).last(1));
    if (!rate.ok()) return rate.status();
    alone.push_back(rate->front());
    if (alone.back() <= 0) return absl::InternalError("one client completed nothing");
  }
  auto together = Rates(serving, absl::MakeConstSpan(seats).first(2));
  if (!together.ok()) return together.status();
  // Two of them first, which is what `sum` is of; with more, all of them beside each other then.
  const double both = (*together)[0] + (*together)[1];
  sum.seen = both / alone[0];
  sum.detail = {{"messages_per_second_of_one", alone[0]},
                {"messages_per_second_of_two", both},
                {"devices", {devices[0], devices[1]}}};
  if (devices.size() > 2) {
    together = Rates(serving, seats);
    if (!together.ok()) return together.status();
  }
  std::vector<double> shares;
  for (size_t i = 0; i < alone.size(); ++i) shares.push_back((*together)[i] / alone[i]);
  each.seen = *std::min_element(shares.begin(), shares.end());
  each.detail = {{"devices", devices},
                 {"messages_per_second_alone", alone},
                 {"messages_per_second_beside", *together}};
  return absl::OkStatus();
}

}  // namespace

std::vector<Figure> MeasureDevices(const Serving& serving) {
  Figure sum = {.key = "two_devices_over_one",
                .what = "work done by two clients on two devices over that of one on one",
                .wanted = 1.95};
  Figure each = {
      .key = "device_beside_another",
      .what = "work done on each device beside all others over that of it alone, the least",
      .wanted = 0.97};
  const absl::Status status =
      serving.other_devices.empty() ? NoSecondDevice(serving) : Measure(serving, sum, each);
  if (!status.ok()) return {Missing(sum, status), Missing(each, status)};
  return {sum, each};
}

}  // namespace gemmd::bench
