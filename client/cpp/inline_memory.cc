#include "client/cpp/inline_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/session_core.h"

namespace gemmd::client {

struct InlineMemory::Arena {
  explicit Arena(StagingMemory made) : staging(std::move(made)) {}

  const StagingMemory staging;
  absl::Mutex mu;
  std::map<int64_t, int64_t> taken ABSL_GUARDED_BY(mu);  // where a block begins, and ends

  // The lowest place: a program that comes again gets the same one, and is known by it.
  std::optional<int64_t> Place(int64_t bytes) {
    absl::MutexLock lock(&mu);
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (bytes <= begin - at) break;
      at = end;
    }
    if (bytes > kBytes - at) return std::nullopt;
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

absl::Status InlineMemory::Make(const CallOptions& options) {
  const absl::Duration patience =
      options.timeout > absl::ZeroDuration() ? options.timeout : absl::Seconds(5);
  const absl::Status shared = session_.client().ShareSocket(patience).status();
  if (!shared.ok()) return shared;
  absl::StatusOr<StagingMemory> made =
      MakeStaging(session_, /*device=*/"", kBytes, "client inline data", options);
  if (!made.ok()) {
    const absl::Status why = made.status();
    if (!absl::IsUnavailable(why) && !absl::IsDeadlineExceeded(why)) off_ = why;
    return why;
  }
  arena_ = std::make_shared<Arena>(*std::move(made));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<InlineMemory::Block>> InlineMemory::Take(
    int64_t bytes, const CallOptions& options) {
  std::shared_ptr<Arena> arena;
  {
    absl::MutexLock lock(&mu_);
    if (!off_.ok()) return off_;
    if (arena_ == nullptr) {
      if (absl::Status made = Make(options); !made.ok()) return made;
    }
    arena = arena_;
  }
  // Each has a place of its own, which it gives back by its beginning.
  const int64_t rounded = std::max<int64_t>((bytes + kAlignment - 1) / kAlignment, 1) * kAlignment;
  const std::optional<int64_t> at = arena->Place(rounded);
  if (at) return std::make_shared<Block>(std::move(arena), *at);
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for ", bytes, " bytes among the ", kBytes,
                   " shared with the server for inline data; let go of results that are not "
                   "needed, or use Buffer::Upload and Download"));
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
