// GraphCache: the graphs of one stream, by program and by the memory they run on.
//
// A program on other memory gets a graph of its own. The alternative, one graph a program whose
// nodes are given the new addresses, costs about as much host time as launching op by op: every
// node's arguments, tensor maps included, are set one call each, or recorded again and compared.
// Plans alternate between a handful of bindings, and find each one's graph ready.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/memory/pinned.h"
#include "kernels/cuda/run/graph.h"
#include "kernels/cuda/run/stamp_pool.h"

namespace gemmd::kernels::cuda {

// Everything that a graph's nodes depend on. Programs are told apart by number, not by address: one
// that is gone may leave its address to the next.
struct GraphKey {
  uint64_t program = 0;                     // CudaProgram::serial
  std::vector<const std::byte*> addresses;  // of the slots, and of the scratch
  const std::byte* signal = nullptr;        // that it sets by itself; with CachedGraph::stamps
  uint64_t returns = 0;  // MemoryReturns() if it has copies by the engine, else 0
  friend bool operator==(const GraphKey&, const GraphKey&) = default;
};

// A graph, the pinned memory its moves of inline bytes go through, and the times that it leaves.
// Shared by the cache and by the runs under way, so that being forgotten does not take it from
// under one.
struct CachedGraph {
  StampsRef stamps;              // of its first and last kernel; null: the stream records events
  std::unique_ptr<Graph> graph;  // null: capturing failed, and is not tried again
  PinnedBlock io;                // empty when the program moves none
  int64_t io_bytes = 0;
  // A run has filled or will read `io`, or its time is not read yet; set by the launching thread,
  // cleared by the harvesting one.
  std::atomic<bool> busy{false};
  bool one_run_at_a_time() const { return io_bytes > 0 || stamps != nullptr; }
};

// Thread-compatible: touched by Stream::Launch only, but for CachedGraph::busy.
class GraphCache {
 public:
  // What all graphs together may hold: device memory of about 2 KiB a node, and pinned memory.
  static constexpr int kMaxGraphs = 1024;  // a model's armed layers, each with a few results, twice
  static constexpr int64_t kMaxNodes = 32768;
  static constexpr int64_t kMaxIoBytes = int64_t{64} << 20;
  // A graph gives way only when it was not used for so many launches. Else plans that take turns on
  // more memory than there is room for would each time capture what the next one has to forget,
  // which takes longer than launching op by op.
  static constexpr int64_t kYoung = 4 * kMaxGraphs;

  // The graph of `key`, or null when there is none, or when those there are serve one run at a time
  // and all are busy. Such a one is busy from now on. Counts as a launch.
  std::shared_ptr<CachedGraph> Find(const GraphKey& key);

  // Whether a graph of so many nodes and bytes may be added, after forgetting old ones if need be.
  // Forgets those of programs that are gone, and whose copies' memory may be.
  bool MakeRoom(int64_t nodes, int64_t io_bytes);

  // Adds what MakeRoom made room for. `program` is not kept alive.
  void Add(GraphKey key, const std::shared_ptr<const Program>& program,
           std::shared_ptr<CachedGraph> graph);

  // Replaces the graphs of `key` by a note that it has none.
  void Refuse(GraphKey key, const std::shared_ptr<const Program>& program);

  void Clear();
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  struct Entry {
    uint64_t hash;
    GraphKey key;
    std::weak_ptr<const Program> program;
    std::shared_ptr<CachedGraph> graph;
    int64_t nodes;
    int64_t used;  // the launch that used it last
  };
  using Entries = std::list<Entry>;
  using ByHash = std::unordered_multimap<uint64_t, Entries::iterator>;

  static bool IsGone(const Entry& entry);
  Entries::iterator Forget(Entries::iterator entry);
  bool Fits(int64_t nodes, int64_t io_bytes) const;

  Entries entries_;  // the longest unused first
  ByHash by_hash_;   // all of them
  int64_t nodes_ = 0;
  int64_t io_bytes_ = 0;
  int64_t launches_ = 0;
};

}  // namespace gemmd::kernels::cuda
