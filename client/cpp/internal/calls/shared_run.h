// A program whose inline data goes through memory shared with the daemon: where each Write's and
// Read's bytes lie in a block of it, and what is done when such a run is refused or not answered.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/execute.h"
#include "client/cpp/internal/calls/program.h"
#include "client/cpp/internal/transfers/inline_memory.h"
#include "client/cpp/ops.h"

namespace gemmd::client {

class SessionCore;

struct InlineSizes {
  int64_t data = 0;   // bytes of all Writes and Reads
  int64_t block = 0;  // with each at its place
};
// Nothing where only the server can say what is wrong with one of them.
std::optional<InlineSizes> InlineSizesOf(const OpList& ops);

// The three parts of moving a list into a block; each Write and Read has the same place in all.
// The ops, encoded, each Write and Read with its place.
std::string MovedInto(const OpList& ops, const InlineMemory::Block& block);
// PlanRun.inline_at, encoded: the same places for a plan of these ops.
std::string PlacesIn(const OpList& ops, const InlineMemory::Block& block);
// What the Writes bring: `inputs`, one each, or their own data.
void WriteInputs(const OpList& ops, absl::Span<const absl::string_view> inputs,
                 InlineMemory::Block& block);
// What it was given there.
std::vector<absl::string_view> InputsIn(const OpList& ops, const InlineMemory::Block& block);
// Where the Reads' bytes will be.
std::shared_ptr<const OutputsElsewhere> OutputsIn(const OpList& ops,
                                                  std::shared_ptr<InlineMemory::Block> block);

struct SharedRun {
  std::shared_ptr<InlineMemory::Block> block;
  Program program;
};

// Whether a run has anything to share. Most have not.
bool MayShare(const OpList& ops, const ExecuteOptions& options);
// The bytes of a block for the run's data, or why it goes in messages.
absl::StatusOr<int64_t> BlockBytes(const OpList& ops, const ExecuteOptions& options);

// The run, and in messages where there is no such run or it was refused.
absl::StatusOr<Result> RunEither(const SessionCore& session, absl::StatusOr<SharedRun> shared,
                                 absl::FunctionRef<Program()> in_messages,
                                 const ExecuteOptions& options);
void RunEitherAsync(std::shared_ptr<SessionCore> session, absl::StatusOr<SharedRun> shared,
                    std::function<Program()> in_messages, const ExecuteOptions& options,
                    ExecuteCallback done);

}  // namespace gemmd::client
