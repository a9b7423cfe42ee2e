#include "client/cpp/run_ops.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "client/cpp/inline_memory.h"
#include "client/cpp/program.h"
#include "client/cpp/session_core.h"

namespace gemmd::client {
namespace {

// Of Writes and Reads together. Below, a message takes as long.
constexpr int64_t kLeastShared = 64 << 10;

int64_t Aligned(int64_t bytes) {
  return (bytes + InlineMemory::kAlignment - 1) / InlineMemory::kAlignment *
         InlineMemory::kAlignment;
}

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

struct Sizes {
  int64_t data = 0;   // bytes of all
  int64_t block = 0;  // with each at its place
};

std::optional<Sizes> SizesOf(const OpList& ops) {
  Sizes sizes;
  for (const OpList::Inlined& op : ops.inlined()) {
    const std::optional<int64_t> bytes = BytesOf(op);
    if (!bytes) return std::nullopt;
    sizes.data += *bytes;
    sizes.block += Aligned(*bytes);
  }
  return sizes;
}

// The ops with a Copy in the place of each Write and Read, from and to its place in the block,
// which gets the Writes' data.
std::string MoveInto(InlineMemory::Block& block, const OpList& ops,
                     std::vector<absl::string_view>& outputs) {
  std::string moved;
  size_t copied = 0;
  int64_t at = 0;
  for (const OpList::Inlined& op : ops.inlined()) {
    absl::StrAppend(&moved, ops.wire().substr(copied, op.begin - copied));
    copied = op.end;
    const int64_t bytes = *BytesOf(op);
    char* const memory = block.data() + at;
    const Tensor there(block.buffer(), op.tensor.dtype(), op.tensor.shape(),
                       block.offset_bytes() + at);
    if (op.is_write) {
      std::memcpy(memory, ops.wire().data() + op.end - bytes, static_cast<size_t>(bytes));
      absl::StrAppend(&moved, OpList().Add(Copy{there, op.tensor}).wire());
    } else {
      outputs.emplace_back(memory, static_cast<size_t>(bytes));
      absl::StrAppend(&moved, OpList().Add(Copy{op.tensor, there}).wire());
    }
    at += Aligned(bytes);
  }
  absl::StrAppend(&moved, ops.wire().substr(copied));
  return moved;
}

// A run through shared memory.
struct SharedRun {
  std::shared_ptr<InlineMemory::Block> block;
  Program program;
};

// Most programs have nothing to share.
bool MayShare(const OpList& ops, const ExecuteOptions& options) {
  return !ops.inlined().empty() && options.route != Route::kGrpc;
}

// Why it goes in messages, else.
absl::StatusOr<SharedRun> Share(const SessionCore& session, const OpList& ops,
                                const ExecuteOptions& options) {
  // Its second try may come from elsewhere, and finds its outputs in the server's answer alone.
  if (!options.op_id.empty()) {
    return absl::FailedPreconditionError(
        "a program with an op_id of the caller's carries its data");
  }
  const std::optional<Sizes> sizes = SizesOf(ops);
  if (!sizes) return absl::FailedPreconditionError("a Write or Read whose size is not its data's");
  if (sizes->data < kLeastShared && options.route == Route::kAuto) {
    return absl::FailedPreconditionError("too little to share");
  }
  absl::StatusOr<std::shared_ptr<InlineMemory::Block>> block =
      session.inline_memory().Take(sizes->block, options.call);
  if (!block.ok()) return block.status();
  auto elsewhere = std::make_shared<OutputsElsewhere>();
  elsewhere->memory = *block;
  const std::string body = MoveInto(**block, ops, elsewhere->outputs);
  return SharedRun{*block, ExecuteProgram(session, body, options, std::move(elsewhere))};
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

// After a run through `block`.
void Settle(const SessionCore& session, const InlineMemory::Block& block,
            const absl::Status& status) {
  // What was not found may be the block's buffer.
  if (!IsDone(status) || absl::IsNotFound(status)) session.inline_memory().GiveUp(block);
}

// What `by_grpc` has done where `shared` was refused.
void Compare(const SessionCore& session, const absl::Status& shared, const absl::Status& by_grpc) {
  if (by_grpc.ok() && !absl::IsNotFound(shared)) session.inline_memory().TurnOff(shared);
}

}  // namespace

absl::StatusOr<Result> RunOps(const SessionCore& session, const OpList& ops,
                              const ExecuteOptions& options) {
  const auto run = [&] {
    return Run(session, ExecuteProgram(session, ops, options), options.call);
  };
  if (!MayShare(ops, options)) return run();
  const absl::StatusOr<SharedRun> shared = Share(session, ops, options);
  if (!shared.ok()) return MayGo(shared.status(), options) ? run() : shared.status();
  absl::StatusOr<Result> result = Run(session, shared->program, options.call);
  Settle(session, *shared->block, result.status());
  if (!MayFareBetter(result.status()) || options.route == Route::kShm) return result;
  absl::StatusOr<Result> by_grpc = run();
  Compare(session, result.status(), by_grpc.status());
  return by_grpc;
}

void RunOpsAsync(std::shared_ptr<SessionCore> session, const OpList& ops,
                 const ExecuteOptions& options, ExecuteCallback done) {
  const auto run = [&] {
    RunAsync(session, ExecuteProgram(*session, ops, options), options.call, std::move(done));
  };
  if (!MayShare(ops, options)) return run();
  const absl::StatusOr<SharedRun> shared = Share(*session, ops, options);
  if (!shared.ok()) return MayGo(shared.status(), options) ? run() : done(shared.status());
  RunAsync(session, shared->program, options.call,
           [session, ops, options, block = shared->block,
            done = std::move(done)](absl::StatusOr<Result> result) {
             Settle(*session, *block, result.status());
             if (!MayFareBetter(result.status()) || options.route == Route::kShm) {
               return done(std::move(result));
             }
             RunAsync(session, ExecuteProgram(*session, ops, options), options.call,
                      [session, done, why = result.status()](absl::StatusOr<Result> by_grpc) {
                        Compare(*session, why, by_grpc.status());
                        done(std::move(by_grpc));
                      });
           });
}

}  // namespace gemmd::client
