#include "kernels/cuda/run/graph_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/memory/returned.h"

namespace gemmd::kernels::cuda {
namespace {

// Of the addresses' bytes, which takes a fifth of hashing one address after the other.
uint64_t HashOf(const GraphKey& key) {
  const absl::string_view bytes(reinterpret_cast<const char*>(key.addresses.data()),
                                key.addresses.size() * sizeof(key.addresses[0]));
  return absl::HashOf(key.program, bytes, key.signal, key.returns);
}

}  // namespace

std::shared_ptr<CachedGraph> GraphCache::Find(const GraphKey& key) {
  ++launches_;
  const auto [first, last] = by_hash_.equal_range(HashOf(key));
  for (auto at = first; at != last; ++at) {
    const Entries::iterator entry = at->second;
    if (!(entry->key == key)) continue;
    CachedGraph& found = *entry->graph;
    if (found.one_run_at_a_time() && found.busy.exchange(true, std::memory_order_acquire)) continue;
    entry->used = launches_;
    entries_.splice(entries_.end(), entries_, entry);
    return entries_.back().graph;
  }
  return nullptr;
}

bool GraphCache::IsGone(const Entry& entry) {
  const uint64_t returns = entry.key.returns;
  return entry.program.expired() || (returns != 0 && returns != MemoryReturns());
}

GraphCache::Entries::iterator GraphCache::Forget(Entries::iterator entry) {
  nodes_ -= entry->nodes;
  io_bytes_ -= entry->graph->io_bytes;
  const auto [first, last] = by_hash_.equal_range(entry->hash);
  by_hash_.erase(std::find_if(first, last, [&](const auto& one) { return one.second == entry; }));
  return entries_.erase(entry);
}

bool GraphCache::Fits(int64_t nodes, int64_t io_bytes) const {
  return size() < kMaxGraphs && nodes_ + nodes <= kMaxNodes && io_bytes_ + io_bytes <= kMaxIoBytes;
}

bool GraphCache::MakeRoom(int64_t nodes, int64_t io_bytes) {
  if (nodes > kMaxNodes || io_bytes > kMaxIoBytes) return false;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = IsGone(*entry) ? Forget(entry) : std::next(entry);
  }
  while (!Fits(nodes, io_bytes)) {
    if (launches_ - entries_.front().used < kYoung) return false;
    Forget(entries_.begin());
  }
  return true;
}

void GraphCache::Add(GraphKey key, const std::shared_ptr<const Program>& program,
                     std::shared_ptr<CachedGraph> graph) {
  const uint64_t hash = HashOf(key);
  const int64_t nodes = graph->graph == nullptr ? 0 : graph->graph->nodes();
  nodes_ += nodes;
  io_bytes_ += graph->io_bytes;
  entries_.push_back({hash, std::move(key), program, std::move(graph), nodes, launches_});
  by_hash_.emplace(hash, std::prev(entries_.end()));
}

void GraphCache::Refuse(GraphKey key, const std::shared_ptr<const Program>& program) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = entry->key == key ? Forget(entry) : std::next(entry);
  }
  Add(std::move(key), program, std::make_shared<CachedGraph>());
}

void GraphCache::Clear() {
  by_hash_.clear();
  entries_.clear();
  nodes_ = 0;
  io_bytes_ = 0;
}

}  // namespace gemmd::kernels::cuda
