// Versions of published weights: workers while versions come, are switched and go.

#include <atomic>
#include <thread>

#include "gemmd/v1/buffer_service.pb.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Fill;
using client::Matmul;
using client::OpList;
using client::Read;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kSize = 32;

class SwitchTest : public E2eTest {
 protected:
  // [32, 32] of `value` under "m@VERSION/NAME".
  void Publish(int64_t version, const std::string& name, float value) {
    client::Session owner = Must(client_.OpenSession());
    client::Buffer buffer = MakeBuffer(owner, {kSize, kSize});
    Must(owner.Execute(OpList().Add(Fill{buffer.tensor(), value})));
    const absl::Status published =
        owner.Publish(buffer, "m@" + std::to_string(version) + "/" + name);
    EXPECT_TRUE(published.ok()) << published;
    Must(owner.Close());
  }
  // Both halves of a version: each element of a b^T is then 32 version^2.
  void PublishVersion(int64_t version) {
    Publish(version, "a", static_cast<float>(version));
    Publish(version, "b", static_cast<float>(version));
  }
};

// One product of what "m/a" and "m/b" mean to the session. The two are looked up a while apart.
absl::StatusOr<float> Product(client::Session& session, absl::Duration between) {
  absl::StatusOr<client::Buffer> a = session.Find("m/a");
  if (!a.ok()) return a.status();
  absl::SleepFor(between);
  absl::StatusOr<client::Buffer> b = session.Find("m/b");
  if (!b.ok()) return b.status();
  absl::StatusOr<client::Buffer> d =
      session.CreateBuffer({.dtype = client::DType::kF32, .shape = {kSize, kSize}});
  if (!d.ok()) return d.status();
  absl::StatusOr<client::Result> result =
      session.Execute(OpList()
                          .Add(Matmul{.a = a->tensor(), .b = b->tensor(), .d = d->tensor()})
                          .Add(Read{d->tensor()}));
  if (!result.ok()) return result.status();
  const std::vector<float> values = FloatsOf(*result);
  for (float value : values) {
    if (value != values[0]) return absl::DataLossError("elements differ");
  }
  return values[0];
}

TEST_F(SwitchTest, UnderLoadNoCallFailsAndNoProgramMixesVersions) {
  constexpr int kWorkers = 4;
  constexpr int64_t kVersions = 12;
  PublishVersion(1);
  ASSERT_EQ(Must(client_.SwitchVersion("m", 1)).previous_version, 0);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> runs{0}, newest_seen{0};
  std::atomic<int> failed{0}, mixed{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&, i] {
      client::Client client = ConnectTo(daemon_);
      while (!stop.load()) {
        client::Session session = Must(client.OpenSession());
        for (int turn = 0; turn < 3; ++turn) {
          const absl::StatusOr<float> product = Product(session, absl::Milliseconds(i));
          session.FlushDeletions();
          if (!product.ok()) {
            ADD_FAILURE() << product.status();
            ++failed;
            continue;
          }
          int64_t version = 1;
          while (version <= kVersions && *product != static_cast<float>(kSize * version * version))
            ++version;
          if (version > kVersions) {
            ADD_FAILURE() << "a product of " << *product << " is of no version";
            ++mixed;
          }
          int64_t before = newest_seen.load();
          while (before < version && !newest_seen.compare_exchange_weak(before, version)) {
          }
          ++runs;
        }
      }
    });
  }
  int64_t unpublished = 0;
  for (int64_t version = 2; version <= kVersions; ++version) {
    PublishVersion(version);
    const int64_t before = runs.load();
    const client::VersionSwitch switched = Must(client_.SwitchVersion("m", version));
    EXPECT_EQ(switched.previous_version, version - 1);
    EXPECT_EQ(switched.names, 2);
    // The old one goes once nobody holds it.
    for (const char* name : {"/a", "/b"}) {
      const std::string old = "m@" + std::to_string(version - 1) + name;
      absl::Status gone;
      EXPECT_TRUE(WaitUntil([&] {
        gone = session_.UnpublishUnlessHeld(old);
        return gone.ok() || client::ReasonOf(gone) != "HELD";
      })) << gone;
      EXPECT_TRUE(gone.ok()) << gone;
      unpublished += gone.ok();
    }
    EXPECT_TRUE(WaitUntil([&] { return runs.load() > before + kWorkers; }));
  }
  EXPECT_TRUE(WaitUntil([&] { return newest_seen.load() == kVersions; }));
  stop.store(true);
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_EQ(mixed.load(), 0);
  EXPECT_EQ(unpublished, 2 * (kVersions - 1));
  EXPECT_EQ(Must(client_.ListPublished()).size(), 2);
  std::printf("%lld programs over %lld switches\n", static_cast<long long>(runs.load()),
              static_cast<long long>(kVersions - 1));
}

TEST_F(SwitchTest, AnAttachedSessionKeepsItsVersionUntilItLetsGo) {
  PublishVersion(1);
  PublishVersion(2);
  Must(client_.SwitchVersion("m", 1));
  client::Session old = Must(client_.OpenSession());
  {
    const client::Buffer a = Must(old.Find("m/a"));
    EXPECT_EQ(a.published_name(), "m@1/a");
    Must(client_.SwitchVersion("m", 2));
    EXPECT_EQ(Must(old.Find("m/b")).published_name(), "m@1/b");
    EXPECT_EQ(Must(session_.Find("m/b")).published_name(), "m@2/b");
    EXPECT_EQ(client::ReasonOf(session_.UnpublishUnlessHeld("m@1/b")), "HELD");
  }
  old.FlushDeletions();
  EXPECT_EQ(Must(old.Find("m/b")).published_name(), "m@2/b");
}

TEST_F(SwitchTest, SaysWhichVersionsThereAre) {
  PublishVersion(3);
  const absl::Status none = session_.Find("m/a").status();
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("m has versions 3"), HasSubstr("none is current")));
  const absl::Status unknown = client_.SwitchVersion("m", 4).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("m@4"));
  Must(client_.SwitchVersion("m", 3));
  for (const auto& buffer : Must(client_.ListPublished())) {
    EXPECT_TRUE(buffer.current_version()) << buffer.published_name();
    EXPECT_FALSE(buffer.owner().empty());
    EXPECT_GT(buffer.publish_time().seconds(), 0);
    EXPECT_EQ(buffer.holders(), 0);
  }
}

TEST_F(SwitchTest, ATtlFreesTheTenantsMemory) {
  client::Session owner = Must(client_.OpenSession());
  client::Buffer buffer = MakeBuffer(owner, {kSize, kSize});
  ASSERT_TRUE(owner.Publish(buffer, "short", {.ttl = absl::Seconds(1)}, {}).ok());
  absl::SleepFor(absl::Milliseconds(1500));
  EXPECT_TRUE(session_.Find("short").ok());  // its owner holds it
  Must(owner.Close());
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_).buffer_bytes == 0; }));
  EXPECT_EQ(session_.Find("short").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(daemon_.LogWith("published_expired"), HasSubstr("name=\"short\""));
}

}  // namespace
}  // namespace gemmd::e2e
