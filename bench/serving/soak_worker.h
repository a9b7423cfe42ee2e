// A client that does a bit of everything, at random, and checks what can be checked at once.

#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace gemmd::bench {

class SoakWorker {
 public:
  // `client` outlives it.
  SoakWorker(client::Client& client, std::string device, uint64_t seed)
      : client_(client), device_(std::move(device)), random_(seed) {}

  // One small job; the ops that it ran. DATA_LOSS when bytes came back that were not sent.
  absl::StatusOr<int64_t> Step();
  // Ends its session; the next Step opens another.
  absl::Status Close();

 private:
  using Job = absl::StatusOr<int64_t> (SoakWorker::*)();

  absl::StatusOr<int64_t> MultiplyInline();  // Write, Write, Matmul, Read
  absl::StatusOr<int64_t> Move();            // Write, Copy, Read: the bytes that went in
  absl::StatusOr<int64_t> Quantized();       // Fill, Quantize, Matmul on FP8
  absl::StatusOr<int64_t> Transfer();        // Upload and Download: the bytes that went in
  absl::StatusOr<int64_t> RunPlan();
  absl::StatusOr<int64_t> RunQueue();

  int64_t Pick(int64_t low, int64_t high);
  std::string RandomBytes(int64_t count);
  absl::StatusOr<client::Buffer> New(client::DType dtype, std::vector<int64_t> shape);

  client::Client& client_;
  const std::string device_;
  std::mt19937_64 random_;
  std::optional<client::Session> session_;
  int64_t left_in_session_ = 0;  // jobs
};

}  // namespace gemmd::bench
