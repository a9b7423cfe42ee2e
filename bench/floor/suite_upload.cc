#include <cstring>
#include <memory>
#include <random>

#include "absl/time/clock.h"
#include "bench/floor/suite.h"
#include "bench/load/upload_rate.h"

namespace gemmd::bench {
namespace {

constexpr int kUploadRounds = 5;
constexpr int64_t kBytes = 256 << 20;

}  // namespace

absl::StatusOr<std::vector<Ratio>> MeasureUploads(const Floor& floor) {
  auto source = std::make_unique<char[]>(kBytes);
  auto copy = std::make_unique<char[]>(kBytes);
  std::mt19937_64 random(1);
  for (int64_t i = 0; i < kBytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(source.get() + i, &word, 8);
  }
  const absl::string_view data(source.get(), kBytes);
  std::vector<Ratio> ratios;
  {
    absl::StatusOr<client::Buffer> buffer = floor.session.CreateBuffer({.size_bytes = kBytes});
    if (!buffer.ok()) return buffer.status();
    const auto ours = [&] {
      return UploadRate(*buffer, data, client::TransferOptions::Route::kGrpc);
    };
    const auto theirs = [&]() -> absl::StatusOr<double> {
      absl::StatusOr<double> rate = floor.echo.SinkRate(data, kUploadChunkBytes);
      if (!rate.ok()) return rate;
      return *rate / 1e9;
    };
    ratios.push_back(MeasureRatio({.key = "upload_grpc_over_bytebuffer",
                                   .ours = "Upload of 256 MiB by gRPC",
                                   .theirs = "bare client stream of 1 MiB ByteBuffers",
                                   .unit = "GB/s",
                                   .target = 0.8},
                                  kUploadRounds, ours, theirs));
  }
  absl::StatusOr<client::Buffer> shared = floor.session.CreateBuffer(
      {.size_bytes = kBytes, .memory_kind = client::MemoryKind::kHostShared});
  const auto ours = [&]() -> absl::StatusOr<double> {
    if (!shared.ok()) return shared.status();
    return UploadRate(*shared, data, client::TransferOptions::Route::kShm);
  };
  const auto theirs = [&]() -> absl::StatusOr<double> {
    const absl::Time start = absl::Now();
    std::memcpy(copy.get(), source.get(), kBytes);
    // The compiler must not drop a copy that nobody reads.
    asm volatile("" : : "r"(copy.get()) : "memory");
    return static_cast<double>(kBytes) / absl::ToDoubleSeconds(absl::Now() - start) / 1e9;
  };
  ratios.push_back(MeasureRatio({.key = "upload_shm_over_memcpy",
                                 .ours = "Upload of 256 MiB by shared memory",
                                 .theirs = "memcpy of the same bytes",
                                 .unit = "GB/s",
                                 .target = 0.6},
                                kUploadRounds, ours, theirs));
  return ratios;
}

}  // namespace gemmd::bench
