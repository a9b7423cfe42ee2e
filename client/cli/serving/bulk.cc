#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cli/bench/upload_rate.h"
#include "client/cli/floor/ratio.h"
#include "client/cli/load/percentiles.h"
#include "client/cli/serving/suite.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::cli {
namespace {

constexpr double kWantedGbPerSecond = 40;

using Route = client::TransferOptions::Route;

double GbPerSecond(int64_t bytes, absl::Time since) {
  return static_cast<double>(bytes) / absl::ToDoubleSeconds(absl::Now() - since) / 1e9;
}

Figure MeasureGrpc(const Serving& serving, client::Buffer& buffer, absl::string_view data) {
  Figure figure = {.key = "upload_grpc_over_bytebuffer",
                   .what = absl::StrCat("upload of ", HumanBytes(static_cast<double>(data.size())),
                                        " by gRPC over a bare client stream of ByteBuffers"),
                   .wanted = 0.8};
  const Ratio ratio = MeasureRatio(
      {.key = "upload_grpc_over_bytebuffer", .target = figure.wanted}, serving.sizes.rounds,
      [&] { return UploadRate(buffer, data, Route::kGrpc); },
      [&]() -> absl::StatusOr<double> {
        absl::StatusOr<double> rate = serving.echo.SinkRate(data, kUploadChunkBytes);
        if (!rate.ok()) return rate;
        return *rate / 1e9;
      });
  if (!ratio.measured()) return Missing(figure, absl::InternalError(ratio.missing));
  figure.seen = ratio.value();
  figure.detail = {{"gb_per_second", Median(ratio.ours)},
                   {"bytebuffer_gb_per_second", Median(ratio.theirs)},
                   {"spread", Spread(ratio.ours)}};
  return figure;
}

// From the caller's own memory: a copy into shared memory, and one from there to the device.
Figure MeasureShared(const Serving& serving, client::Buffer& buffer, absl::string_view data) {
  Figure figure = {.key = "upload_shm",
                   .what = "the same through shared memory, from memory of the caller's own",
                   .unit = "GB/s",
                   .wanted = kWantedGbPerSecond};
  std::vector<double> rates;
  for (int round = 0; round <= serving.sizes.rounds; ++round) {
    absl::StatusOr<double> rate = UploadRate(buffer, data, Route::kShm);
    if (!rate.ok()) return Missing(figure, rate.status());
    if (round > 0) rates.push_back(*rate);
  }
  figure.seen = Median(rates);
  figure.detail = {{"spread", Spread(rates)}};
  return figure;
}

// To memory of the caller's own that has been written before: new pages take as long as the bytes.
Figure MeasureDownload(const Serving& serving, const client::Buffer& buffer, int64_t bytes) {
  Figure figure = {.key = "download_shm",
                   .what = "download of as much through shared memory, to the caller's own",
                   .unit = "GB/s",
                   .wanted = kWantedGbPerSecond};
  const auto target = std::make_unique<char[]>(bytes);
  std::vector<double> rates;
  for (int round = 0; round <= serving.sizes.rounds; ++round) {
    const absl::Time start = absl::Now();
    const absl::StatusOr<client::TransferReport> moved =
        buffer.Download(absl::MakeSpan(target.get(), bytes), 0, {.route = Route::kShm});
    if (!moved.ok()) return Missing(figure, moved.status());
    if (round > 0) rates.push_back(GbPerSecond(bytes, start));
  }
  figure.seen = Median(rates);
  figure.detail = {{"spread", Spread(rates)}};
  return figure;
}

// Between the device and memory that is shared already, as who writes to a mapped buffer or reads
// from it has it.
Figure MeasureMapped(const Serving& serving, client::Buffer& buffer, absl::string_view data,
                     bool up) {
  Figure figure = {.key = up ? "upload_mapped_shm" : "download_mapped_shm",
                   .what = up ? "upload from memory that is mapped by both: one Copy to the device"
                              : "download to such memory: one Copy from the device",
                   .unit = "GB/s",
                   .wanted = kWantedGbPerSecond};
  const auto bytes = static_cast<int64_t>(data.size());
  absl::StatusOr<client::Buffer> shared = serving.session.CreateBuffer(
      {.size_bytes = bytes, .memory_kind = client::MemoryKind::kHostShared});
  if (!shared.ok()) return Missing(figure, shared.status());
  absl::StatusOr<absl::Span<char>> mapping = shared->Map();
  if (!mapping.ok()) return Missing(figure, mapping.status());
  std::memcpy(mapping->data(), data.data(), data.size());
  const std::vector<int64_t> shape = {bytes / 4};
  const client::Tensor host = shared->View(client::DType::kF32, shape);
  const client::Tensor device = buffer.View(client::DType::kF32, shape);
  client::OpList ops;
  ops.Add(up ? client::Copy{host, device} : client::Copy{device, host});
  std::vector<double> rates;
  double device_seconds = 0;
  for (int round = 0; round <= serving.sizes.rounds; ++round) {
    const absl::Time start = absl::Now();
    absl::StatusOr<client::Result> result = serving.session.Execute(ops);
    if (!result.ok()) return Missing(figure, result.status());
    if (round == 0) continue;
    rates.push_back(GbPerSecond(bytes, start));
    device_seconds = result->report().device_seconds();
  }
  figure.seen = Median(rates);
  figure.detail = {{"spread", Spread(rates)}, {"device_us", device_seconds * 1e6}};
  return figure;
}

}  // namespace

std::vector<Figure> MeasureBulk(const Serving& serving) {
  const int64_t bytes = serving.sizes.upload_bytes;
  auto source = std::make_unique<char[]>(bytes);
  std::mt19937_64 random(1);
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(source.get() + i, &word, 8);
  }
  const absl::string_view data(source.get(), bytes);
  absl::StatusOr<client::Buffer> buffer = serving.session.CreateBuffer({.size_bytes = bytes});
  if (!buffer.ok()) {
    const Figure uploads = {.key = "upload_grpc_over_bytebuffer", .wanted = 0.8};
    return {Missing(uploads, buffer.status())};
  }
  return {MeasureGrpc(serving, *buffer, data), MeasureShared(serving, *buffer, data),
          MeasureMapped(serving, *buffer, data, /*up=*/true),
          MeasureDownload(serving, *buffer, bytes),
          MeasureMapped(serving, *buffer, data, /*up=*/false)};
}

}  // namespace gemmd::cli
