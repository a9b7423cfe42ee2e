#include "server/engine/sessions/session.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "server/engine/clock_steps.h"
#include "server/engine/reason.h"
#include "tests/client/cpp/eventually.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

class SessionTest : public StateTest {
 protected:
  SessionStore& sessions() { return state_->sessions(); }
  absl::StatusCode UseCode(const Tenant& tenant, const Session& session) {
    return sessions().Use(tenant, ToBytes(session.handle())).status().code();
  }
  // The state reaps, too, in a thread of its own: what it ends is counted a moment later.
  bool EndIsCounted(const char* cause) {
    return client::Eventually([&] { return metrics_.SessionsEnded(cause).Value() == 1; });
  }
};

TEST_F(SessionTest, IsFoundByItsTenantOnly) {
  auto session = Open(*red_);
  EXPECT_EQ(UseCode(*red_, *session), absl::StatusCode::kOk);
  const auto other = sessions().Use(*blue_, ToBytes(session->handle())).status();
  const auto unknown = sessions().Use(*blue_, ToBytes(NewHandle())).status();
  EXPECT_EQ(other, unknown);  // the same code, text and reason: nothing to learn from
  EXPECT_EQ(other.code(), absl::StatusCode::kNotFound);
}

TEST_F(SessionTest, AnIdOfTheWrongLengthIsInvalid) {
  const auto status = sessions().Use(*red_, "short").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("5 bytes"));
}

TEST_F(SessionTest, TtlOutsideTheBoundsIsRefused) {
  SessionStore::OpenOptions options{.ttl = absl::Milliseconds(1)};
  const auto refused = sessions().Open(*red_, options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1ms"));
  EXPECT_EQ(sessions().size(), 0);
}

TEST_F(SessionTest, ALabelThatCouldForgeALogLineIsRefused) {
  SessionStore::OpenOptions options{.label = "x\nERROR forged"};
  EXPECT_EQ(sessions().Open(*red_, options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, ExpiresWhenItsTtlPassesWithoutACall) {
  auto session = Open(*red_);
  AddBuffer(*session, 4096);
  clock_.Advance(absl::Seconds(29));
  EXPECT_EQ(UseCode(*red_, *session), absl::StatusCode::kOk);  // a call moves the expiry
  clock_.Advance(absl::Seconds(29));
  sessions().Reap();
  EXPECT_EQ(UseCode(*red_, *session), absl::StatusCode::kOk);
  clock_.Advance(absl::Seconds(31));
  sessions().Reap();
  EXPECT_EQ(UseCode(*red_, *session), absl::StatusCode::kNotFound);
  EXPECT_TRUE(EndIsCounted("expired"));
  EXPECT_EQ(used_bytes(), 0);
  EXPECT_EQ(metrics_.Sessions().Value(), 0);
}

TEST_F(SessionTest, AHeldSessionDoesNotExpireAndACutOneLivesForItsGrace) {
  auto session = Open(*red_);
  const auto ticket = session->Hold({});
  ASSERT_TRUE(ticket.ok());
  clock_.Advance(absl::Hours(10));
  sessions().Reap();
  EXPECT_EQ(UseCode(*red_, *session), absl::StatusCode::kOk);
  session->Unhold(*ticket, clock_.Now());
  clock_.Advance(absl::Milliseconds(1900));
  sessions().Reap();
  EXPECT_EQ(sessions().size(), 1);
  clock_.Advance(absl::Milliseconds(200));
  sessions().Reap();
  EXPECT_EQ(sessions().size(), 0);
  EXPECT_TRUE(EndIsCounted("cut"));
}

TEST_F(SessionTest, WhatADeadClientSentLastKeepsItsSessionNoLongerThanTheGrace) {
  auto session = Open(*red_);
  auto ticket = session->Hold({});
  ASSERT_TRUE(ticket.ok());
  session->Unhold(*ticket, clock_.Now());
  for (int call = 0; call < 3; ++call) {  // each moves the expiry: a client may hold it again
    clock_.Advance(absl::Milliseconds(1900));
    sessions().Reap();
    EXPECT_EQ(UseCode(*red_, *session), absl::StatusCode::kOk);
  }
  ticket = session->Hold({});
  ASSERT_TRUE(ticket.ok());
  clock_.Advance(absl::Hours(1));
  sessions().Reap();
  EXPECT_EQ(UseCode(*red_, *session), absl::StatusCode::kOk);
  session->Unhold(*ticket, clock_.Now());
  EXPECT_EQ(UseCode(*red_, *session), absl::StatusCode::kOk);
  clock_.Advance(absl::Milliseconds(2100));
  sessions().Reap();
  EXPECT_EQ(sessions().size(), 0);
}

TEST_F(SessionTest, AClockThatIsSetMovesNoEnd) {
  for (const absl::Duration step : {absl::Hours(1), -absl::Hours(1)}) {
    auto session = Open(*red_), cut = Open(*red_);
    const auto ticket = cut->Hold({});
    ASSERT_TRUE(ticket.ok());
    cut->Unhold(*ticket, clock_.Now());
    clock_.Advance(step);
    sessions().MoveTimes(step);
    clock_.Advance(absl::Milliseconds(1900));
    sessions().Reap();
    EXPECT_EQ(sessions().size(), 2);
    clock_.Advance(absl::Milliseconds(200));
    sessions().Reap();
    EXPECT_EQ(sessions().size(), 1);  // the cut one has had its grace
    clock_.Advance(absl::Seconds(27));
    sessions().Reap();
    EXPECT_EQ(sessions().size(), 1);
    clock_.Advance(absl::Seconds(1));
    sessions().Reap();
    EXPECT_EQ(sessions().size(), 0);
  }
}

TEST(ClockStepsTest, AreWhatTheClockWasSetByAndNotWhatPassed) {
  ClockSteps steps(absl::Hours(7));
  const auto take = [&](double seconds) {
    return steps.Take(absl::Hours(7) + absl::Seconds(seconds));
  };
  EXPECT_EQ(take(0), absl::ZeroDuration());
  EXPECT_EQ(take(0.9), absl::ZeroDuration());
  EXPECT_EQ(take(1.2), absl::Seconds(1.2));
  EXPECT_EQ(take(-3600), absl::Seconds(-3601.2));
  EXPECT_EQ(take(-3600), absl::ZeroDuration());
}

TEST_F(SessionTest, ASecondHolderReplacesTheFirst) {
  auto session = Open(*red_);
  bool replaced = false;
  const auto first = session->Hold({.ended = nullptr, .replaced = [&] { replaced = true; }});
  const auto second = session->Hold({});
  EXPECT_TRUE(replaced);
  session->Unhold(*first, clock_.Now());  // the first one's end means nothing any more
  EXPECT_EQ(session->expiry(), absl::InfiniteFuture());
  session->Unhold(*second, clock_.Now());
  EXPECT_LT(session->expiry(), absl::InfiniteFuture());
}

TEST_F(SessionTest, EndTellsTheHolder) {
  auto session = Open(*red_);
  bool told = false;
  ASSERT_TRUE(session->Hold({.ended = [&] { told = true; }, .replaced = nullptr}).ok());
  EXPECT_TRUE(sessions().End(*session, EndCause::kClosed));
  EXPECT_TRUE(told);
  EXPECT_FALSE(sessions().End(*session, EndCause::kClosed));
}

TEST_F(SessionTest, MemoryIsFreedWhenTheLastUseIsGone) {
  auto session = Open(*red_);
  AddBuffer(*session, 1000);
  AddBuffer(*session, 24);
  auto use = sessions().Use(*red_, ToBytes(session->handle()));
  Session::Freed freed;
  sessions().End(*session, EndCause::kClosed, [&](Session::Freed total) { freed = total; });
  EXPECT_EQ(used_bytes(), 1024);
  EXPECT_EQ(freed.buffers, 0);
  *use = SessionUse();
  EXPECT_EQ(used_bytes(), 0);
  EXPECT_EQ(freed.buffers, 2);
  EXPECT_EQ(freed.bytes, 1024);
}

TEST_F(SessionTest, DeletingBuffersIsAllOrNothing) {
  auto session = Open(*red_);
  const Handle a = AddBuffer(*session), b = AddBuffer(*session);
  const std::vector<Handle> mixed = {a, NewHandle()};
  const auto refused = session->DeleteBuffers(mixed).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(refused), "BUFFER_GONE");
  EXPECT_EQ(used_bytes(), 2048);
  const std::vector<Handle> both = {a, b, a};
  EXPECT_EQ(*session->DeleteBuffers(both), 2048);
  EXPECT_EQ(session->DeleteBuffers({&a, 1}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SessionTest, ALeaseKeepsADeletedBuffersMemory) {
  auto session = Open(*red_);
  const Handle handle = AddBuffer(*session);
  BufferLease lease = session->FindBuffer(handle)->buffer;
  EXPECT_EQ(*session->DeleteBuffers({&handle, 1}), 0);  // nothing is free yet
  EXPECT_EQ(used_bytes(), 1024);
  lease.reset();
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(SessionTest, ListsBuffersOldestFirst) {
  auto session = Open(*red_);
  const Handle a = AddBuffer(*session), b = AddBuffer(*session), c = AddBuffer(*session);
  const auto buffers = session->Buffers();
  ASSERT_EQ(buffers.size(), 3);
  EXPECT_EQ(buffers[0].handle, a);
  EXPECT_EQ(buffers[1].handle, b);
  EXPECT_EQ(buffers[2].handle, c);
}

TEST_F(SessionTest, ListShowsATenantItsOwnSessions) {
  auto first = Open(*red_), second = Open(*red_), other = Open(*blue_);
  const auto listed = sessions().List(red_);
  ASSERT_EQ(listed.size(), 2);
  EXPECT_EQ(listed[0], first);
  EXPECT_EQ(listed[1], second);
}

class SessionLimitTest : public StateTest {
 protected:
  SessionLimitTest() : StateTest({.max_sessions = 2, .max_buffers = 3}) {}
};

TEST_F(SessionLimitTest, ATenantsLimitLeavesTheOtherAlone) {
  auto a = Open(*red_), b = Open(*red_);
  EXPECT_EQ(state_->sessions().Open(*red_, {}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(state_->sessions().Open(*blue_, {}).ok());
  state_->sessions().End(*a, EndCause::kClosed);
  EXPECT_TRUE(state_->sessions().Open(*red_, {}).ok());
}

TEST_F(SessionLimitTest, FoundHandlesCountAsBuffers) {
  auto session = Open(*red_);
  const Handle handle = AddBuffer(*session);
  BufferRef found = *session->FindBuffer(handle);
  found.found = true;
  EXPECT_TRUE(session->AddBuffer(found).ok());
  EXPECT_TRUE(session->AddBuffer(found).ok());
  EXPECT_EQ(session->AddBuffer(found).status().code(), absl::StatusCode::kResourceExhausted);
}

class PublishedTest : public StateTest {};

TEST_F(PublishedTest, IsFoundByNameWithinTheTenant) {
  auto session = Open(*red_);
  const Handle handle = AddBuffer(*session);
  const BufferRef ref = *session->FindBuffer(handle);
  ASSERT_TRUE(state_->published().Publish(*red_, "w/layer.0", ref).ok());
  EXPECT_EQ(state_->published().Find(*red_, "w/layer.0", session->key())->buffer, ref.buffer);
  EXPECT_EQ(state_->published().Find(*blue_, "w/layer.0", 0).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(session->FindBuffer(handle)->read_only());
  EXPECT_EQ(state_->published().List(*red_).size(), 1);
  EXPECT_TRUE(state_->published().List(*blue_).empty());
  EXPECT_EQ(state_->published().NameOf(*ref.buffer), "w/layer.0");
}

TEST_F(PublishedTest, OutlivesItsSessionUntilUnpublished) {
  auto session = Open(*red_);
  const Handle handle = AddBuffer(*session);
  ASSERT_TRUE(state_->published().Publish(*red_, "w", *session->FindBuffer(handle)).ok());
  state_->sessions().End(*session, EndCause::kClosed);
  EXPECT_EQ(used_bytes(), 1024);
  EXPECT_TRUE(state_->published().Unpublish(*red_, "w").ok());
  EXPECT_EQ(used_bytes(), 0);
  EXPECT_EQ(state_->published().Unpublish(*red_, "w").code(), absl::StatusCode::kNotFound);
}

TEST_F(PublishedTest, NamesAreCheckedAndUnique) {
  auto session = Open(*red_);
  const BufferRef a = *session->FindBuffer(AddBuffer(*session));
  const BufferRef b = *session->FindBuffer(AddBuffer(*session));
  auto& published = state_->published();
  EXPECT_EQ(published.Publish(*red_, "", a).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(published.Publish(*red_, "a b", a).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(published.Publish(*red_, std::string(129, 'x'), a).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(published.Publish(*red_, "x", a).ok());
  EXPECT_EQ(published.Publish(*red_, "x", b).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(published.Publish(*red_, "y", a).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(published.Publish(*blue_, "x", b).ok());
}

TEST_F(PublishedTest, ABufferBeingUploadedCannotBePublished) {
  auto session = Open(*red_);
  const BufferRef ref = *session->FindBuffer(AddBuffer(*session));
  ASSERT_TRUE(ref.buffer->BeginUpload(0).ok());
  EXPECT_EQ(ref.buffer->BeginUpload(0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(state_->published().Publish(*red_, "x", ref).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ref.buffer->CommitUpload(10);
  ref.buffer->EndUpload();
  EXPECT_EQ(ref.buffer->upload().committed_bytes, 10);
  EXPECT_TRUE(state_->published().Publish(*red_, "x", ref).ok());
}

class ImportedTest : public StateTest {
 protected:
  ImportedTest() {
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::make_unique<FakeBackend>(device_, "gpu:0", "GPU-fake"));
    Config config;
    config.tenants = {{.name = "red"}};
    config.share.disabled = true;
    gpu_ = *ServerState::Create(config, std::move(backends), clock_, log_, metrics_, "gpu");
    SessionStore::OpenOptions options;
    options.device = gpu_->devices()[0].get();
    session_ = *gpu_->sessions().Open(*gpu_->tenants().Find("red"), options);
  }
  Device& device() { return *gpu_->devices()[0]; }
  BufferLease Make(kernels::MemoryKind kind, int64_t bytes) {
    const kernels::DeviceHandle handle{
        .handle = std::string(64, 'h'), .size_bytes = bytes, .gpu_uuid = "GPU-fake"};
    const bool imported = kind == kernels::MemoryKind::kDeviceImported;
    auto buffer = Buffer::Create(session_->tenant(), device(), {.size_bytes = bytes, .kind = kind},
                                 clock_.Now(), {.device = imported ? &handle : nullptr});
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }

  std::unique_ptr<ServerState> gpu_;
  std::shared_ptr<Session> session_;
};

TEST_F(ImportedTest, DeletionIsKnownToBeDoneOnlyWhenTheMemoryIsUnmapped) {
  BufferLease in_flight = Make(kernels::MemoryKind::kDeviceImported, 4096);
  const Handle handle = *session_->AddBuffer({.buffer = in_flight});
  bool unmapped = false;
  std::shared_ptr<void> token(nullptr, [&](void*) { unmapped = true; });
  ASSERT_TRUE(session_->DeleteBuffers({handle}, std::move(token)).ok());
  EXPECT_FALSE(session_->FindBuffer(handle).ok());
  EXPECT_FALSE(unmapped);
  in_flight.reset();  // as a program that is done lets go of it
  EXPECT_TRUE(unmapped);
}

TEST_F(ImportedTest, OtherDeletionsWaitForNothing) {
  BufferLease in_flight = Make(kernels::MemoryKind::kDevice, 4096);
  const Handle handle = *session_->AddBuffer({.buffer = in_flight});
  bool told = false;
  std::shared_ptr<void> token(nullptr, [&](void*) { told = true; });
  ASSERT_TRUE(session_->DeleteBuffers({handle}, std::move(token)).ok());
  EXPECT_TRUE(told);
}

TEST_F(ImportedTest, TakesNothingOfTheDeviceAndIsCounted) {
  BufferLease imported = Make(kernels::MemoryKind::kDeviceImported, 4096);
  EXPECT_EQ(device().used_bytes(), 0);
  EXPECT_EQ(device().buffers(), 1);
  EXPECT_EQ(metrics_.BufferBytes("gpu:0", "device_imported").Value(), 4096);
  imported.reset();
  EXPECT_EQ(metrics_.BufferBytes("gpu:0", "device_imported").Value(), 0);
}

TEST_F(ImportedTest, SharedDeviceMemoryTakesWholeBlocks) {
  const BufferLease shared = Make(kernels::MemoryKind::kDeviceShared, 1);
  EXPECT_EQ(shared->spec().size_bytes, 1);
  EXPECT_EQ(device().used_bytes(), kernels::kDeviceSharedBlockBytes);
}

TEST_F(ImportedTest, AnotherProcesssMemoryGetsNoName) {
  const BufferLease imported = Make(kernels::MemoryKind::kDeviceImported, 4096);
  const auto refused =
      gpu_->published().Publish(session_->tenant(), "weights", {.buffer = imported}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), reason::kNotShared);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("copy it"));
  EXPECT_FALSE(imported->published());
}

}  // namespace
}  // namespace gemmd::server
