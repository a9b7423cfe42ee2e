#include "client/cpp/internal/calls/shared_run.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "client/cpp/internal/connect/session_core.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {
namespace {

// Of Writes and Reads together. Below, a message takes as long.
constexpr int64_t kLeastShared = 64 << 10;

// What a Write or Read moves; nothing for one that only the server can say something about.
std::optional<int64_t> BytesOf(const OpList::Inlined& op) {
  int64_t bytes = SizeBytes(op.tensor.dtype());
  for (const int64_t extent : op.tensor.shape()) {
    if (extent < 0 || extent > InlineMemory::kMostBytes) return std::nullopt;
    bytes *= extent;
    if (bytes > InlineMemory::kMostBytes) return std::nullopt;
  }
  if (op.tensor.empty() || (op.is_write && op.data_bytes != bytes)) return std::nullopt;
  return bytes;
}

// Calls `use(op, bytes, at)` for each Write and Read, in order; all have sizes.
template <typename Use>
void ForEachPlace(const OpList& ops, Use use) {
  int64_t at = 0;
  for (const OpList::Inlined& op : ops.inlined()) {
    const int64_t bytes = *BytesOf(op);
    use(op, bytes, at);
    at += InlineMemory::Aligned(bytes);
  }
}

// Whether the same ops with their data in the message may fare better, or say better what is wrong
// with them. Nothing has run.
bool MayFareBetter(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status) ||
         absl::IsOutOfRange(status);
}

// Whether the daemon has nothing more to do with the block.
bool IsDone(const absl::Status& status) {
  // Draining, or its device is fenced.
  const bool turned_away = absl::IsUnavailable(status) && !ReasonOf(status).empty();
  return status.ok() || turned_away || MayFareBetter(status) || absl::IsResourceExhausted(status) ||
         absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
}

// Whether a program that cannot share may go in messages.
bool MayGo(const absl::Status& not_shared, const ExecuteOptions& options) {
  return options.route == Route::kAuto && !absl::IsDeadlineExceeded(not_shared);
}

// After a run through `block`. True if the same in messages may fare better.
bool Settle(const SessionCore& session, const InlineMemory::Block& block,
            const ExecuteOptions& options, const absl::Status& status) {
  // What was not found may be the block's buffer.
  if (!IsDone(status) || absl::IsNotFound(status)) session.inline_memory().GiveUp(block);
  return MayFareBetter(status) && options.route == Route::kAuto;
}

// The same program went in messages after a refusal. Where that was not wrong in itself, the
// session's programs cannot reach the memory; what was not found was the memory itself.
void Compare(const SessionCore& session, const absl::Status& refusal,
             const absl::StatusOr<Result>& by_grpc) {
  if (by_grpc.ok() && !absl::IsNotFound(refusal)) session.inline_memory().TurnOff(refusal);
}

}  // namespace

std::optional<InlineSizes> InlineSizesOf(const OpList& ops) {
  InlineSizes sizes;
  for (const OpList::Inlined& op : ops.inlined()) {
    const std::optional<int64_t> bytes = BytesOf(op);
    if (!bytes) return std::nullopt;
    sizes.data += *bytes;
    sizes.block += InlineMemory::Aligned(*bytes);
  }
  return sizes;
}

std::string MovedInto(const OpList& ops, const InlineMemory::Block& block) {
  std::string moved;
  size_t copied = 0;
  ForEachPlace(ops, [&](const OpList::Inlined& op, int64_t /*bytes*/, int64_t at) {
    absl::StrAppend(&moved, ops.wire().substr(copied, op.begin - copied));
    OpList::AppendShared(op, block.buffer(), block.offset_bytes() + at, moved);
    copied = op.end;
  });
  absl::StrAppend(&moved, ops.wire().substr(copied));
  return moved;
}

std::string PlacesIn(const OpList& ops, const InlineMemory::Block& block) {
  std::string places;
  ForEachPlace(ops, [&](const OpList::Inlined& /*op*/, int64_t /*bytes*/, int64_t at) {
    OpList::AppendPlace(v1::PlanRun::kInlineAtFieldNumber, block.buffer(),
                        block.offset_bytes() + at, places);
  });
  return places;
}

void WriteInputs(const OpList& ops, absl::Span<const absl::string_view> inputs,
                 InlineMemory::Block& block) {
  size_t next = 0;
  ForEachPlace(ops, [&](const OpList::Inlined& op, int64_t bytes, int64_t at) {
    if (!op.is_write) return;
    const absl::string_view data =
        inputs.empty() ? ops.wire().substr(op.end - static_cast<size_t>(bytes), bytes)
                       : inputs[next++];
    std::memcpy(block.data() + at, data.data(), static_cast<size_t>(bytes));
  });
}

std::vector<absl::string_view> InputsIn(const OpList& ops, const InlineMemory::Block& block) {
  std::vector<absl::string_view> inputs;
  ForEachPlace(ops, [&](const OpList::Inlined& op, int64_t bytes, int64_t at) {
    if (op.is_write) inputs.emplace_back(block.data() + at, static_cast<size_t>(bytes));
  });
  return inputs;
}

std::shared_ptr<const OutputsElsewhere> OutputsIn(const OpList& ops,
                                                  std::shared_ptr<InlineMemory::Block> block) {
  auto elsewhere = std::make_shared<OutputsElsewhere>();
  ForEachPlace(ops, [&](const OpList::Inlined& op, int64_t bytes, int64_t at) {
    if (op.is_write) return;
    elsewhere->outputs.emplace_back(block->data() + at, static_cast<size_t>(bytes));
  });
  elsewhere->memory = std::move(block);
  return elsewhere;
}

bool MayShare(const OpList& ops, const ExecuteOptions& options) {
  return !ops.inlined().empty() && options.route != Route::kGrpc;
}

absl::StatusOr<int64_t> BlockBytes(const OpList& ops, const ExecuteOptions& options) {
  // Its second try may come from elsewhere, and finds its outputs in the server's answer alone.
  if (!options.op_id.empty()) {
    return absl::FailedPreconditionError(
        "a program with an op_id of the caller's carries its data");
  }
  const std::optional<InlineSizes> sizes = InlineSizesOf(ops);
  if (!sizes) return absl::FailedPreconditionError("a Write or Read whose size is not its data's");
  if (sizes->data < kLeastShared && options.route == Route::kAuto) {
    return absl::FailedPreconditionError("too little to share");
  }
  return sizes->block;
}

absl::StatusOr<Result> RunEither(const SessionCore& session, absl::StatusOr<SharedRun> shared,
                                 absl::FunctionRef<Program()> in_messages,
                                 const ExecuteOptions& options) {
  if (!shared.ok() && !MayGo(shared.status(), options)) return shared.status();
  if (!shared.ok()) return Run(session, in_messages(), options.call);
  absl::StatusOr<Result> result = Run(session, shared->program, options.call);
  if (!Settle(session, *shared->block, options, result.status())) return result;
  absl::StatusOr<Result> by_grpc = Run(session, in_messages(), options.call);
  Compare(session, result.status(), by_grpc);
  return by_grpc;
}

void RunEitherAsync(std::shared_ptr<SessionCore> session, absl::StatusOr<SharedRun> shared,
                    std::function<Program()> in_messages, const ExecuteOptions& options,
                    ExecuteCallback done) {
  if (!shared.ok() && !MayGo(shared.status(), options)) return done(shared.status());
  if (!shared.ok()) return RunAsync(session, in_messages(), options.call, std::move(done));
  Program program = std::move(shared->program);
  RunAsync(session, std::move(program), options.call,
           [session, in_messages = std::move(in_messages), options, shared = *std::move(shared),
            done = std::move(done)](absl::StatusOr<Result> result) {
             if (!Settle(*session, *shared.block, options, result.status())) {
               return done(std::move(result));
             }
             RunAsync(session, in_messages(), options.call,
                      [session, done, refusal = result.status()](absl::StatusOr<Result> by_grpc) {
                        Compare(*session, refusal, by_grpc);
                        done(std::move(by_grpc));
                      });
           });
}

}  // namespace gemmd::client
