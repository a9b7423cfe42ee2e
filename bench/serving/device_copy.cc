#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/floor/ratio.h"
#include "bench/load/percentiles.h"
#include "bench/serving/suite.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {
namespace {

// Of the 450 GB/s that NVLink 4 carries one way on an H100 or H200.
constexpr double kWantedCopyGbPerSecond = 350;

absl::Status Measure(const Serving& serving, Figure& figure) {
  const int64_t bytes = serving.sizes.device_copy_bytes;
  const std::vector<int64_t> shape = {bytes / 4};
  std::vector<client::Buffer> buffers;
  for (const std::string& device : {serving.other_devices.front(), serving.device}) {
    absl::StatusOr<client::Buffer> buffer = serving.session.CreateBuffer(
        {.dtype = client::DType::kF32, .shape = shape, .device = device});
    if (!buffer.ok()) return buffer.status();
    buffers.push_back(*std::move(buffer));
  }
  client::OpList ops;
  ops.Add(client::Copy{buffers[0].tensor(), buffers[1].tensor()});
  std::vector<double> rates;
  std::vector<double> called;
  for (int round = 0; round <= serving.sizes.rounds; ++round) {
    const absl::Time start = absl::Now();
    absl::StatusOr<client::Result> result = serving.session.Execute(ops);
    if (!result.ok()) return result.status();
    if (round == 0) continue;
    const double gigabytes = static_cast<double>(bytes) / 1e9;
    rates.push_back(gigabytes / result->report().device_seconds());
    called.push_back(gigabytes / absl::ToDoubleSeconds(absl::Now() - start));
  }
  figure.seen = Median(rates);
  figure.detail = {{"spread", Spread(rates)},
                   {"bytes", bytes},
                   {"gb_per_second_with_call", Median(called)},
                   {"from", serving.other_devices.front()},
                   {"to", serving.device}};
  return absl::OkStatus();
}

}  // namespace

std::vector<Figure> MeasureDeviceCopy(const Serving& serving) {
  Figure figure = {.key = "device_copy",
                   .what = "a Copy op that reads a second device's memory, in device time",
                   .unit = "GB/s",
                   .wanted = kWantedCopyGbPerSecond};
  if (serving.other_devices.empty()) return {Missing(figure, NoSecondDevice(serving))};
  if (absl::Status status = Measure(serving, figure); !status.ok()) {
    return {Missing(figure, status)};
  }
  return {figure};
}

}  // namespace gemmd::bench
