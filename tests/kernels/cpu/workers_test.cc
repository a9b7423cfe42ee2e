#include "kernels/cpu/workers.h"

#include <atomic>
#include <numeric>

#include "gtest/gtest.h"
#include "kernels/cpu/runs.h"

namespace gemmd::kernels::cpu {
namespace {

TEST(WorkersTest, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    Workers workers(threads);
    for (int64_t count : {0, 1, 7, 100, 1001}) {
      std::vector<std::atomic<int>> hits(count);
      workers.For(count, 3, [&](int64_t begin, int64_t end) {
        EXPECT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++hits[i];
      });
      for (const auto& hit : hits) ASSERT_EQ(hit, 1);
    }
  }
}

TEST(WorkersTest, RunsShortLoopsOnTheCallersThread) {
  Workers workers(4);
  workers.For(10, 10, [caller = std::this_thread::get_id()](int64_t begin, int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(end - begin, 10);
  });
}

TEST(WorkersTest, ServesCallersAtOnceAndNestedLoops) {
  Workers workers(3);
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        workers.For(20, 1, [&](int64_t begin, int64_t end) {
          workers.For(end - begin, 1, [&](int64_t b, int64_t e) { sum += e - b; });
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 20);
}

TEST(RunsTest, MergesWhatLiesBehindOneAnother) {
  const Dims shape = MakeDims({3, 4, 5});
  const Runs runs = PlanRuns(shape, RowMajorStrides(shape), RowMajorStrides(shape));
  EXPECT_EQ(runs.extents, (std::array<int64_t, 3>{1, 1, 60}));
}

TEST(RunsTest, PutsTheTargetsSmallestStrideInnermost) {
  const Runs runs = PlanRuns(MakeDims({4, 5}), MakeDims({5, 1}), MakeDims({1, 4}));
  EXPECT_EQ(runs.extents, (std::array<int64_t, 3>{1, 5, 4}));
  EXPECT_EQ(runs.dst_strides[2], 1);
  EXPECT_EQ(runs.src_strides[2], 5);
}

TEST(RunsTest, HasNoRunsWithoutElements) {
  Workers workers(2);
  Scratch scratch;
  const Bindings bindings;
  const RunContext context{bindings, workers, scratch};
  ForEachRun(PlanRuns(MakeDims({4, 0}), MakeDims({5, 1}), MakeDims({5, 1})), context,
             [](int64_t, int64_t, int64_t) { ADD_FAILURE(); });
}

TEST(RunsTest, VisitsEveryElementOnceWhenSharedOut) {
  Workers workers(3);
  Scratch scratch;
  const Bindings bindings;
  const RunContext context{bindings, workers, scratch};
  // Large enough to be cut, with runs that the cuts fall into.
  const Dims shape = MakeDims({7, 300, 401});
  const Dims strides = MakeDims({300 * 500, 500, 1});
  std::vector<std::atomic<char>> hits(7 * 300 * 500);
  ForEachRun(PlanRuns(shape, strides, strides), context, [&](int64_t src, int64_t dst, int64_t n) {
    EXPECT_EQ(src, dst);
    for (int64_t i = 0; i < n; ++i) ++hits[src + i];
  });
  for (size_t i = 0; i < hits.size(); ++i) ASSERT_EQ(hits[i], i % 500 < 401 ? 1 : 0);
}

}  // namespace
}  // namespace gemmd::kernels::cpu
