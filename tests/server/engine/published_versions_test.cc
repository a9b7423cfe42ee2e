#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"
#include "server/engine/sessions/published.h"
#include "server/engine/sessions/weight_name.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WeightNameTest, AVersionStandsBehindTheNameOrAFolder) {
  const WeightName plain = *ParseWeightName("m/layer.0/w");
  EXPECT_EQ(plain.base, "m/layer.0/w");
  EXPECT_FALSE(plain.versioned());
  const WeightName folder = *ParseWeightName("m@12/layer.0/w");
  EXPECT_EQ(folder.base, "m");
  EXPECT_EQ(folder.version, 12);
  EXPECT_EQ(folder.rest, "/layer.0/w");
  const WeightName whole = *ParseWeightName("a/w@3");
  EXPECT_EQ(whole.base, "a/w");
  EXPECT_EQ(whole.rest, "");
  EXPECT_THAT(BasesOf("m/a/w"), ElementsAre("m", "m/a", "m/a/w"));
}

TEST(WeightNameTest, OtherVersionsAreRefused) {
  for (const char* name : {"m@0", "m@x", "m@", "m@01/w", "m@-1", "m@1.5", "m@1000000000",
                           "m@99999999999999999999", "@2/w", "m/@2", "m@1/w@2", "m@1x/w"}) {
    const absl::Status refused = ParseWeightName(name).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("name")) << name;
  }
}

class VersionsTest : public StateTest {
 protected:
  // One that outlives its ttl, which the server looks after while a test moves the time.
  std::shared_ptr<Session> OpenHeld(Tenant& tenant) {
    auto session = Open(tenant);
    EXPECT_TRUE(session->Hold({}).ok());
    return session;
  }
  PublishedBuffers& published() { return state_->published(); }
  // A buffer of a session that ends at once.
  BufferLease Publish(const std::string& name, PublishOptions options = {}) {
    auto session = Open(*red_);
    const BufferRef ref = *session->FindBuffer(AddBuffer(*session));
    const auto claim = published().Publish(*red_, name, ref, std::move(options));
    EXPECT_TRUE(claim.ok()) << claim.status();
    state_->sessions().End(*session, EndCause::kClosed);
    return ref.buffer;
  }
  Handle Attach(Session& session, const std::string& name) {
    auto found = *published().Find(*red_, name, session.key());
    return *session.AddBuffer({.buffer = std::move(found.buffer), .found = true},
                              std::move(found.claim));
  }
  std::string Means(Session& session, const std::string& name) {
    auto found = published().Find(*red_, name, session.key());
    return found.ok() ? published().NameOf(*found->buffer) : ReasonOf(found.status());
  }
  void Switch(int64_t version) { ASSERT_TRUE(published().Switch(*red_, "m", version).ok()); }
};

TEST_F(VersionsTest, ASwitchIsForAllNamesAtOnce) {
  for (const char* name : {"m@1/a", "m@1/b", "m@2/a", "m@2/b"}) Publish(name);
  auto session = Open(*red_);
  EXPECT_EQ(Means(*session, "m/a"), "NAME_UNKNOWN");  // none is current yet
  Switch(1);
  EXPECT_EQ(Means(*session, "m/a"), "m@1/a");
  const auto switched = *published().Switch(*red_, "m", 2);
  EXPECT_EQ(switched.previous, 1);
  EXPECT_EQ(switched.names, 2);
  EXPECT_EQ(Means(*session, "m/a"), "m@2/a");
  EXPECT_EQ(Means(*session, "m/b"), "m@2/b");
  EXPECT_EQ(Means(*session, "m@1/b"), "m@1/b");
}

TEST_F(VersionsTest, ASessionKeepsTheVersionThatItHolds) {
  for (const char* name : {"m@1/a", "m@1/b", "m@2/a", "m@2/b"}) Publish(name);
  Switch(1);
  auto old = Open(*red_);
  const Handle a = Attach(*old, "m/a");
  Switch(2);
  auto fresh = Open(*red_);
  EXPECT_EQ(Means(*old, "m/b"), "m@1/b");
  EXPECT_EQ(Means(*fresh, "m/b"), "m@2/b");
  ASSERT_TRUE(old->DeleteBuffers({&a, 1}).ok());  // lets go of all of it
  EXPECT_EQ(Means(*old, "m/b"), "m@2/b");
}

TEST_F(VersionsTest, ASessionKeepsToNamesThatHadNoVersion) {
  for (const char* name : {"m/a", "m/b"}) Publish(name);
  auto old = Open(*red_);
  const Handle a = Attach(*old, "m/a");
  for (const char* name : {"m@2/a", "m@2/b"}) Publish(name);
  Switch(2);
  EXPECT_EQ(Means(*old, "m/b"), "m/b");
  EXPECT_EQ(Means(*Open(*red_), "m/b"), "m@2/b");
  ASSERT_TRUE(old->DeleteBuffers({&a, 1}).ok());
  EXPECT_EQ(Means(*old, "m/b"), "m@2/b");
}

TEST_F(VersionsTest, ANameOfNoVersionIsNotPublishedBelowOne) {
  Publish("m@1/a");
  Switch(1);
  auto session = Open(*red_);
  const BufferRef ref = *session->FindBuffer(AddBuffer(*session));
  const auto refused = published().Publish(*red_, "m/c", ref).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), reason::kVersioned);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("m@1/c"));
  EXPECT_EQ(Means(*session, "m/c"), "NAME_UNKNOWN");  // not another version's, nor an old one
}

TEST_F(VersionsTest, AHeldVersionStaysUnlessTakenAway) {
  for (const char* name : {"m@1/a", "m@1/b"}) Publish(name);
  Switch(1);
  auto session = Open(*red_);
  const Handle a = Attach(*session, "m/a");
  const absl::Status held = published().Unpublish(*red_, "m@1/b", /*unless_held=*/true);
  EXPECT_EQ(held.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(held), reason::kHeld);
  EXPECT_EQ(Means(*session, "m/b"), "m@1/b");
  ASSERT_TRUE(session->DeleteBuffers({&a, 1}).ok());
  EXPECT_TRUE(published().Unpublish(*red_, "m@1/b", /*unless_held=*/true).ok());
  EXPECT_TRUE(published().Unpublish(*red_, "m@1/a", /*unless_held=*/true).ok());
  EXPECT_EQ(used_bytes(), 0);
  EXPECT_EQ(published().Switch(*red_, "m", 1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(VersionsTest, AVersionThatLostNamesGetsNoNewOnesWhileItIsHeld) {
  for (const char* name : {"m@1/a", "m@1/b"}) Publish(name);
  auto session = Open(*red_);
  const Handle a = Attach(*session, "m@1/a");
  ASSERT_TRUE(published().Unpublish(*red_, "m@1/b").ok());
  const BufferRef ref = *session->FindBuffer(AddBuffer(*session));
  EXPECT_EQ(ReasonOf(published().Publish(*red_, "m@1/b", ref).status()), reason::kHeld);
  ASSERT_TRUE(session->DeleteBuffers({&a, 1}).ok());
  EXPECT_TRUE(published().Publish(*red_, "m@1/b", ref).ok());
}

TEST_F(VersionsTest, OneTenantsSwitchIsNotAnothers) {
  Publish("m@1/a");
  EXPECT_EQ(published().Switch(*blue_, "m", 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(published().Switch(*red_, "m@1", 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(published().Switch(*red_, "m", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(VersionsTest, FactsTellWhoAndWhen) {
  const absl::Time begin = clock_.Now();
  const BufferLease buffer = Publish("w", {.owner = "uid:7", .content_hash = std::string(32, 'h')});
  clock_.Advance(absl::Seconds(5));
  auto session = Open(*red_);
  const Handle handle = Attach(*session, "w");
  clock_.Advance(absl::Seconds(5));
  PublishedFacts facts = *published().FactsOf(*buffer);
  EXPECT_EQ(facts.owner, "uid:7");
  EXPECT_EQ(facts.content_hash, std::string(32, 'h'));
  EXPECT_EQ(facts.published, begin);
  EXPECT_EQ(facts.holders, 1);
  EXPECT_EQ(facts.last_use, begin + absl::Seconds(10));
  ASSERT_TRUE(session->DeleteBuffers({&handle, 1}).ok());
  clock_.Advance(absl::Seconds(5));
  facts = published().List(*red_)[0].facts;
  EXPECT_EQ(facts.holders, 0);
  EXPECT_EQ(facts.last_use, begin + absl::Seconds(10));
}

TEST_F(VersionsTest, ATtlRunsFromTheLastHolder) {
  Publish("w", {.ttl = absl::Minutes(1)});
  Publish("stays");
  auto session = OpenHeld(*red_);
  const Handle handle = Attach(*session, "w");
  clock_.Advance(absl::Minutes(5));
  EXPECT_THAT(published().Expire(), ElementsAre());
  ASSERT_TRUE(session->DeleteBuffers({&handle, 1}).ok());
  clock_.Advance(absl::Seconds(59));
  EXPECT_THAT(published().Expire(), ElementsAre());
  EXPECT_EQ(red_->usage().buffer_bytes, 2048);
  clock_.Advance(absl::Seconds(1));
  // The server looks, too, by itself.
  std::vector<std::string> expired = published().Expire();
  for (int i = 0; i < 1200 && red_->usage().buffer_bytes != 1024; ++i) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_EQ(red_->usage().buffer_bytes, 1024);
  EXPECT_EQ(Means(*session, "w"), "NAME_UNKNOWN");
  EXPECT_EQ(Means(*session, "stays"), "stays");
}

TEST_F(VersionsTest, AVersionIsUsedAsAWhole) {
  for (const char* name : {"m@1/a", "m@1/b"}) Publish(name, {.ttl = absl::Minutes(1)});
  auto session = OpenHeld(*red_);
  Attach(*session, "m@1/a");
  clock_.Advance(absl::Minutes(2));
  EXPECT_THAT(published().Expire(), ElementsAre());
  EXPECT_EQ(Means(*session, "m@1/b"), "m@1/b");
}

TEST_F(VersionsTest, OtherTtlsAndHashesAreRefused) {
  auto session = Open(*red_);
  const BufferRef ref = *session->FindBuffer(AddBuffer(*session));
  for (absl::Duration ttl : {absl::ZeroDuration(), absl::Seconds(-1), absl::Milliseconds(999),
                             absl::Hours(24 * 4000), absl::InfiniteDuration()}) {
    EXPECT_EQ(published().Publish(*red_, "w", ref, {.ttl = ttl}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(published().Publish(*red_, "w", ref, {.content_hash = "short"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gemmd::server
