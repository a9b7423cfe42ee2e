#include "client/cpp/internal/transfers/inline_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/connect/session_core.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

// Each block has a place of its own, which it gives back by its beginning.
int64_t PlaceBytes(int64_t bytes) { return InlineMemory::Aligned(std::max<int64_t>(bytes, 1)); }

}  // namespace

struct InlineMemory::Arena {
  explicit Arena(StagingMemory made) : staging(std::move(made)) {}

  const StagingMemory staging;
  absl::Mutex mu;
  std::map<int64_t, int64_t> taken ABSL_GUARDED_BY(mu);  // where a block begins, and ends

  int64_t size() const { return staging.memory.size_bytes(); }

  // The lowest place: a program that comes again gets the same one, and is known by it.
  std::optional<int64_t> Place(int64_t bytes) {
    absl::MutexLock lock(&mu);
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (bytes <= begin - at) break;
      at = end;
    }
    if (bytes > size() - at) return std::nullopt;
    taken.emplace(at, at + bytes);
    return at;
  }
};

InlineMemory::Block::~Block() {
  absl::MutexLock lock(&arena_->mu);
  arena_->taken.erase(at_);
}

char* InlineMemory::Block::data() const { return arena_->staging.memory.span().data() + at_; }

const Handle& InlineMemory::Block::buffer() const { return arena_->staging.buffer; }

absl::StatusOr<std::shared_ptr<InlineMemory::Arena>> InlineMemory::Make(
    int64_t bytes, const CallOptions& options) {
  const absl::Duration patience =
      options.timeout > absl::ZeroDuration() ? options.timeout : absl::Seconds(5);
  GEMMD_RETURN_IF_ERROR(session_.client().ShareSocket(patience).status());
  GEMMD_ASSIGN_OR_RETURN(StagingMemory made, MakeStaging(session_, /*device=*/"", bytes,
                                                         "client inline data", options));
  return std::make_shared<Arena>(std::move(made));
}

absl::Status InlineMemory::Grow(int64_t bytes, const CallOptions& options) {
  const int64_t now = arena_ == nullptr ? 0 : arena_->size();
  if (bytes > most_ || now >= most_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for ", bytes, " bytes among the ", std::max(now, most_),
                     " shared with the server for inline data; let go of results that are not "
                     "needed, or use Buffer::Upload and Download"));
  }
  const auto wanted = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(4 * bytes)));
  const int64_t size = std::clamp(std::max(wanted, 2 * now), kLeastBytes, most_);
  absl::StatusOr<std::shared_ptr<Arena>> made = Make(size, options);
  if (!made.ok()) {
    const absl::Status why = made.status();
    if (absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why)) return why;
    if (arena_ == nullptr) off_ = why;
    most_ = now;
    return why;
  }
  if (arena_ != nullptr) session_.reaper().DropBuffer(arena_->staging.buffer);
  arena_ = *std::move(made);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<InlineMemory::Block>> InlineMemory::Take(
    int64_t bytes, const CallOptions& options) {
  const int64_t rounded = PlaceBytes(bytes);
  absl::MutexLock lock(&mu_);
  if (!off_.ok()) return off_;
  std::optional<int64_t> at;
  if (arena_ != nullptr) at = arena_->Place(rounded);
  if (!at) {
    GEMMD_RETURN_IF_ERROR(Grow(rounded, options));
    at = arena_->Place(rounded);
  }
  return std::make_shared<Block>(arena_, *at);
}

void InlineMemory::GiveUp(const Block& block) {
  absl::MutexLock lock(&mu_);
  if (arena_ != block.arena_) return;
  session_.reaper().DropBuffer(block.buffer());
  arena_ = nullptr;
}

void InlineMemory::TurnOff(const absl::Status& why) {
  Drop();
  absl::MutexLock lock(&mu_);
  off_ = why;
}

bool InlineMemory::Drop() {
  absl::MutexLock lock(&mu_);
  if (arena_ == nullptr) return false;
  session_.reaper().DropBuffer(arena_->staging.buffer);
  arena_ = nullptr;
  return true;
}

}  // namespace gemmd::client
