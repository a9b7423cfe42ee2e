#include "bench/serving/soak_worker.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/scales.h"

namespace gemmd::bench {
namespace {

using client::Buffer;
using client::DType;
using client::ScaleGranularity;
using client::Tensor;

absl::Status Differs(absl::string_view what, size_t bytes) {
  return absl::DataLossError(absl::StrCat(what, " of ", bytes, " bytes gave back others"));
}

}  // namespace

absl::StatusOr<int64_t> SoakWorker::Step() {
  if (left_in_session_ == 0) {
    absl::StatusOr<client::Session> session =
        client_.OpenSession({.label = "gemmd_bench soak", .device = device_});
    if (!session.ok()) return session.status();
    session_ = *std::move(session);
    left_in_session_ = Pick(20, 200);
  }
  constexpr Job kJobs[] = {&SoakWorker::MultiplyInline, &SoakWorker::Move,
                           &SoakWorker::Quantized,      &SoakWorker::Transfer,
                           &SoakWorker::RunPlan,        &SoakWorker::RunQueue};
  const absl::StatusOr<int64_t> ops = (this->*kJobs[Pick(0, std::size(kJobs) - 1)])();
  if (!ops.ok()) return ops;
  if (--left_in_session_ == 0) {
    // Some sessions end with buffers in them.
    absl::StatusOr<Buffer> left = New(DType::kF32, {Pick(1, 64), Pick(1, 512)});
    if (!left.ok()) return left.status();
    left->Release();
    if (absl::Status status = Close(); !status.ok()) return status;
  }
  return ops;
}

absl::Status SoakWorker::Close() {
  left_in_session_ = 0;
  if (!session_.has_value()) return absl::OkStatus();
  absl::StatusOr<client::SessionClosed> closed = session_->Close();
  session_.reset();
  return closed.status();
}

absl::StatusOr<int64_t> SoakWorker::MultiplyInline() {
  const int64_t m = Pick(1, 65), n = Pick(1, 260), k = Pick(1, 300);
  absl::StatusOr<Buffer> a = New(DType::kF32, {m, k});
  absl::StatusOr<Buffer> b = New(DType::kF32, {n, k});
  absl::StatusOr<Buffer> d = New(DType::kF32, {m, n});
  for (const auto* buffer : {&a, &b, &d}) {
    if (!buffer->ok()) return buffer->status();
  }
  const std::vector<float> ones_a(m * k, 1.0f), ones_b(n * k, 1.0f);
  client::OpList ops;
  ops.Add(client::Write{a->tensor(), client::AsBytes(absl::MakeConstSpan(ones_a))})
      .Add(client::Write{b->tensor(), client::AsBytes(absl::MakeConstSpan(ones_b))})
      .Add(client::Matmul{.a = a->tensor(), .b = b->tensor(), .d = d->tensor()})
      .Add(client::Read{d->tensor()});
  absl::StatusOr<client::Result> result = session_->Execute(ops);
  if (!result.ok()) return result.status();
  const absl::Span<const float> values = result->Output<float>(0);
  for (float value : values) {
    if (value != static_cast<float>(k)) {  // small whole numbers: exact in any order
      return absl::DataLossError(absl::StrCat("a product of ones with k=", k, " gave ", value));
    }
  }
  return ops.size();
}

absl::StatusOr<int64_t> SoakWorker::Move() {
  const int64_t rows = Pick(1, 400),
                columns = Pick(1, 400);  // its data in messages or shared memory
  absl::StatusOr<Buffer> from = New(DType::kI8, {rows, columns});
  absl::StatusOr<Buffer> to = New(DType::kI8, {rows, columns});
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  const std::string bytes = RandomBytes(rows * columns);
  client::OpList ops;
  ops.Add(client::Write{from->tensor(), bytes})
      .Add(client::Copy{from->tensor(), to->tensor()})
      .Add(client::Read{to->tensor()});
  absl::StatusOr<client::Result> result = session_->Execute(ops);
  if (!result.ok()) return result.status();
  if (result->output(0) != bytes) return Differs("a copy", bytes.size());
  return ops.size();
}

absl::StatusOr<int64_t> SoakWorker::Quantized() {
  const int64_t m = Pick(1, 130), n = Pick(1, 4) * 64, k = Pick(1, 4) * 128;
  absl::StatusOr<Buffer> a = New(DType::kBF16, {m, k}), b = New(DType::kBF16, {n, k});
  absl::StatusOr<Buffer> qa = New(DType::kE4M3, {m, k}), qb = New(DType::kE4M3, {n, k});
  constexpr ScaleGranularity kRows = ScaleGranularity::kBlock1x128;
  constexpr ScaleGranularity kTiles = ScaleGranularity::kBlock128x128;
  // A's scales lie as the client library lays them out, or row-major, as other callers may.
  const bool padded = Pick(0, 1) == 0;
  absl::StatusOr<Buffer> sa = New(
      DType::kF32, padded ? client::ScalesRoom({m, k}, kRows) : client::ScalesShape({m, k}, kRows));
  absl::StatusOr<Buffer> sb = New(DType::kF32, client::ScalesRoom({n, k}, kTiles));
  absl::StatusOr<Buffer> d = New(DType::kBF16, {m, n});
  for (const auto* buffer : {&a, &b, &qa, &qb, &sa, &sb, &d}) {
    if (!buffer->ok()) return buffer->status();
  }
  const Tensor a_scales = padded ? client::ScalesIn(sa->tensor(), {m, k}, kRows) : sa->tensor();
  client::OpList ops;
  ops.Add(client::Fill{a->tensor(), 0.5})
      .Add(client::Fill{b->tensor(), 0.25})
      .Add(client::Quantize{a->tensor(), qa->tensor(), a_scales, kRows})
      .Add(client::Quantize{b->tensor(), qb->tensor(), sb->tensor(), kTiles})
      .Add(client::Matmul{.a = client::Operand(qa->tensor(), kRows, a_scales),
                          .b = client::Operand(qb->tensor(), kTiles, sb->tensor()),
                          .d = d->tensor()});
  absl::Status status = session_->Execute(ops).status();
  if (!status.ok()) return status;
  return ops.size();
}

absl::StatusOr<int64_t> SoakWorker::Transfer() {
  const int64_t bytes = int64_t{1} << Pick(8, 21);
  absl::StatusOr<Buffer> buffer = session_->CreateBuffer({.size_bytes = bytes});
  if (!buffer.ok()) return buffer.status();
  const std::string sent = RandomBytes(bytes);
  client::TransferOptions options;
  if (Pick(0, 1) == 0) options.route = client::TransferOptions::Route::kGrpc;
  absl::Status status = buffer->Upload(sent, 0, options).status();
  if (!status.ok()) return status;
  std::string got(bytes, '\0');
  status = buffer->Download(absl::MakeSpan(got.data(), got.size()), 0, options).status();
  if (!status.ok()) return status;
  if (got != sent) return Differs("an upload", sent.size());
  return 2;
}

absl::StatusOr<int64_t> SoakWorker::RunPlan() {
  const int64_t side = Pick(1, 8) * 16;
  absl::StatusOr<Buffer> x = New(DType::kF16, {side, side});
  absl::StatusOr<Buffer> y = New(DType::kF16, {side, side});
  absl::StatusOr<Buffer> other = New(DType::kF16, {side, side});
  for (const auto* buffer : {&x, &y, &other}) {
    if (!buffer->ok()) return buffer->status();
  }
  client::OpList ops;
  ops.Add(client::Fill{x->tensor(), 1})
      .Add(client::Matmul{.a = x->tensor(), .b = x->tensor(), .d = y->tensor()});
  absl::StatusOr<client::Plan> plan = session_->CreatePlan(ops);
  if (!plan.ok()) return plan.status();
  const int runs = static_cast<int>(Pick(1, 5));
  for (int i = 0; i < runs; ++i) {
    client::PlanArgs args;
    if (i % 2 == 1) args.rebind = {{y->id(), other->id()}};
    if (absl::Status status = plan->Run(args).status(); !status.ok()) return status;
  }
  return runs * ops.size();
}

absl::StatusOr<int64_t> SoakWorker::RunQueue() {
  absl::StatusOr<Buffer> x = New(DType::kF32, {16, 16}), y = New(DType::kBF16, {16, 16});
  if (!x.ok()) return x.status();
  if (!y.ok()) return y.status();
  absl::StatusOr<client::Queue> queue = session_->OpenQueue();
  if (!queue.ok()) return queue.status();
  client::OpList ops;
  ops.Add(client::Fill{x->tensor(), 2}).Add(client::Convert{x->tensor(), y->tensor()});
  const int batches = static_cast<int>(Pick(1, 20));
  std::vector<client::Ticket> tickets;
  for (int i = 0; i < batches; ++i) {
    absl::StatusOr<client::Ticket> ticket = queue->Submit(ops);
    if (!ticket.ok()) return ticket.status();
    tickets.push_back(*std::move(ticket));
  }
  for (client::Ticket& ticket : tickets) {
    if (absl::Status status = ticket.Wait().status(); !status.ok()) return status;
  }
  if (absl::Status status = queue->Close(); !status.ok()) return status;
  return batches * ops.size();
}

int64_t SoakWorker::Pick(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random_);
}

std::string SoakWorker::RandomBytes(int64_t count) {
  std::string bytes(count, '\0');
  for (int64_t i = 0; i < count; i += 8) {
    const uint64_t word = random_();
    std::memcpy(bytes.data() + i, &word, std::min<int64_t>(8, count - i));
  }
  return bytes;
}

absl::StatusOr<Buffer> SoakWorker::New(DType dtype, std::vector<int64_t> shape) {
  return session_->CreateBuffer({.dtype = dtype, .shape = std::move(shape)});
}

}  // namespace gemmd::bench
