#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bench/floor/ratio.h"
#include "bench/load/percentiles.h"
#include "bench/load/upload_rate.h"
#include "bench/serving/suite.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {
namespace {

constexpr double kWantedGbPerSecond = 40;

using Route = client::TransferOptions::Route;

// The median of what `transfer` reaches, after one that does not count.
Figure MeasureRate(Figure figure, const Serving& serving, int64_t bytes,
                   absl::FunctionRef<absl::Status()> transfer) {
  figure.unit = "GB/s";
  figure.wanted = kWantedGbPerSecond;
  std::vector<double> rates;
  for (int round = 0; round <= serving.sizes.rounds; ++round) {
    const absl::Time start = absl::Now();
    if (absl::Status status = transfer(); !status.ok()) return Missing(figure, status);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    if (round > 0) rates.push_back(static_cast<double>(bytes) / seconds / 1e9);
  }
  figure.seen = Median(rates);
  figure.detail = {{"spread", Spread(rates)}};
  return figure;
}

Figure MeasureGrpc(const Serving& serving, client::Buffer& buffer, absl::string_view data) {
  Figure figure = {
      .key = "upload_grpc_over_bytebuffer",
      .what = absl::StrCat("upload of ", cli::HumanBytes(static_cast<double>(data.size())),
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
Figure MeasureUpload(const Serving& serving, client::Buffer& buffer, absl::string_view data) {
  return MeasureRate({.key = "upload_shm",
                      .what = "the same through shared memory, from memory of the caller's own"},
                     serving, static_cast<int64_t>(data.size()),
                     [&] { return UploadRate(buffer, data, Route::kShm).status(); });
}

// To memory of the caller's own whose pages are there.
Figure MeasureDownload(const Serving& serving, const client::Buffer& buffer, int64_t bytes) {
  const auto target = std::make_unique<char[]>(bytes);
  return MeasureRate({.key = "download_shm",
                      .what = "download of as much through shared memory, to the caller's own"},
                     serving, bytes, [&] {
                       return buffer
                           .Download(absl::MakeSpan(target.get(), bytes), 0, {.route = Route::kShm})
                           .status();
                     });
}

// Between the device and memory that is shared already, as who writes to a mapped buffer or reads
// from it has it.
Figure MeasureMapped(const Serving& serving, client::Buffer& buffer, absl::string_view data,
                     bool up) {
  Figure figure = {.key = up ? "upload_mapped_shm" : "download_mapped_shm",
                   .what = up ? "upload from memory that is mapped by both: one Copy to the device"
                              : "download to such memory: one Copy from the device"};
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
  double device_seconds = 0;
  figure = MeasureRate(std::move(figure), serving, bytes, [&] {
    absl::StatusOr<client::Result> result = serving.session.Execute(ops);
    if (result.ok()) device_seconds = result->report().device_seconds();
    return result.status();
  });
  if (figure.seen) figure.detail["device_us"] = device_seconds * 1e6;
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
  return {MeasureGrpc(serving, *buffer, data), MeasureUpload(serving, *buffer, data),
          MeasureMapped(serving, *buffer, data, /*up=*/true),
          MeasureDownload(serving, *buffer, bytes),
          MeasureMapped(serving, *buffer, data, /*up=*/false)};
}

}  // namespace gemmd::bench
