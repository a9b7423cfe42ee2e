#include "client/cpp/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/cpp/client.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "tests/client/cpp/fake_daemon.h"
#include "tests/client/cpp/fake_reason.h"

namespace gemmd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BufferTest : public ::testing::Test {
 protected:
  Buffer Make(int64_t size_bytes = 64) {
    return *session_.CreateBuffer({.size_bytes = size_bytes});
  }

  FakeDaemon daemon_;
  std::vector<std::string> told_;  // filled while the session flushes: no lock needed then
  Client client_ = ConnectTo(
      daemon_, {.on_background_error = [this](absl::string_view what, const absl::Status& status) {
        told_.push_back(std::string(what) + ": " + std::string(status.message()));
      }});
  Session session_ = *client_.OpenSession({.liveness = SessionOptions::Liveness::kNone});
};

TEST_F(BufferTest, KnowsWhatItWasCreatedAs) {
  const Buffer buffer = *session_.CreateBuffer(
      {.dtype = DType::kF32, .shape = {4, 6}, .device = "cpu:1", .label = "w"});
  EXPECT_EQ(buffer.size_bytes(), 96);
  EXPECT_EQ(buffer.dtype(), DType::kF32);
  EXPECT_THAT(buffer.shape(), ElementsAre(4, 6));
  EXPECT_EQ(buffer.device(), "cpu:1");
  EXPECT_EQ(buffer.label(), "w");
  EXPECT_EQ(buffer.memory_kind(), MemoryKind::kDevice);
  EXPECT_TRUE(buffer.owned());
  EXPECT_THAT(buffer.tensor().shape(), ElementsAre(4, 6));
  EXPECT_EQ(buffer.View(DType::kI8, {8}, 88).offset_bytes(), 88);
}

TEST_F(BufferTest, TensorOfAnUntypedBufferIsInvalid) {
  EXPECT_FALSE(Make().tensor().status().ok());
}

TEST_F(BufferTest, DestructionDeletesIt) {
  { const Buffer buffer = Make(); }
  session_.FlushDeletions();
  EXPECT_THAT(daemon_.Buffers(), IsEmpty());
  EXPECT_EQ(session_.background_errors(), 0);
}

TEST_F(BufferTest, MovingKeepsOneOwner) {
  Buffer first = Make();
  const Buffer second = std::move(first);
  EXPECT_FALSE(first.owned());
  first = Make();
  session_.FlushDeletions();
  EXPECT_EQ(daemon_.Buffers().size(), 2);
  first = Buffer();
  session_.FlushDeletions();
  EXPECT_THAT(daemon_.Buffers(), ElementsAre(second.id().bytes()));
}

TEST_F(BufferTest, ManyDroppedAtOnceGoInFewCalls) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 200; ++i) buffers.push_back(Make());
  buffers.clear();
  session_.FlushDeletions();
  EXPECT_THAT(daemon_.Buffers(), IsEmpty());
  EXPECT_LT(daemon_.Calls("DeleteBuffers"), 100);
}

TEST_F(BufferTest, OneUnknownHandleDoesNotKeepTheOthers) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 5; ++i) buffers.push_back(Make());
  daemon_.Forget(buffers[2].id().bytes());
  buffers.clear();
  session_.FlushDeletions();
  EXPECT_THAT(daemon_.Buffers(), IsEmpty());
  EXPECT_EQ(session_.background_errors(), 1);
  EXPECT_THAT(told_, ElementsAre(HasSubstr("no such buffer")));
}

TEST_F(BufferTest, DeletionWhoseAnswerWasLostIsNoError) {
  daemon_.Fail("DeleteBuffers", Torn(), /*times=*/1, /*after=*/true);
  { const Buffer buffer = Make(); }
  session_.FlushDeletions();
  EXPECT_THAT(daemon_.Buffers(), IsEmpty());
  EXPECT_EQ(session_.background_errors(), 0);
}

TEST_F(BufferTest, DeletionThatKeepsFailingIsCountedAndTold) {
  daemon_.Fail("DeleteBuffers", absl::InternalError("broken"));
  { const Buffer buffer = Make(); }
  session_.FlushDeletions();
  EXPECT_EQ(session_.background_errors(), 1);
  EXPECT_THAT(told_, ElementsAre("delete 1 buffers: broken"));
}

TEST_F(BufferTest, DeleteWaitsAndTellsItsError) {
  Buffer buffer = Make();
  EXPECT_TRUE(buffer.Delete().ok());
  EXPECT_THAT(daemon_.Buffers(), IsEmpty());
  EXPECT_EQ(buffer.Delete().code(), absl::StatusCode::kFailedPrecondition);
  Buffer other = Make();
  daemon_.Forget(other.id().bytes());
  EXPECT_EQ(other.Delete().code(), absl::StatusCode::kNotFound);
}

TEST_F(BufferTest, ReleasedOneStaysAndCanBeAttached) {
  const Handle id = Make().Release();
  session_.FlushDeletions();
  EXPECT_EQ(daemon_.Buffers().size(), 1);
  {
    const Buffer attached = *session_.AttachBuffer(id);
    EXPECT_EQ(attached.size_bytes(), 64);
    EXPECT_FALSE(attached.owned());
  }
  session_.FlushDeletions();
  EXPECT_EQ(daemon_.Buffers().size(), 1);
  EXPECT_EQ(*session_.DeleteBuffers({id}), 64);
}

TEST_F(BufferTest, CreateBufferIsNotTriedAgainAfterABreak) {
  daemon_.Fail("CreateBuffer", Torn(), /*times=*/1, /*after=*/true);
  EXPECT_EQ(session_.CreateBuffer({.size_bytes = 8}).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(daemon_.Calls("CreateBuffer"), 1);
}

TEST_F(BufferTest, CreateBufferAtTheLimitWaitsForDroppedOnes) {
  daemon_.LimitBuffers(1);
  for (int i = 0; i < 20; ++i) {
    const absl::StatusOr<Buffer> buffer = session_.CreateBuffer({.size_bytes = 8});
    EXPECT_TRUE(buffer.ok()) << i << ": " << buffer.status();
  }
  const Buffer kept = Make();
  EXPECT_EQ(session_.CreateBuffer({.size_bytes = 8}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(BufferTest, PublishedOneIsFoundReadOnlyUntilUnpublished) {
  Buffer buffer = Make();
  ASSERT_TRUE(session_.Publish(buffer, "weights/w1").ok());
  EXPECT_TRUE(buffer.read_only());
  EXPECT_EQ(ReasonOf(session_.Publish(buffer, "weights/w1")), "NAME_TAKEN");
  const absl::StatusOr<Buffer> found = session_.Find("weights/w1");
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->read_only());
  EXPECT_TRUE(found->owned());
  EXPECT_TRUE(session_.Unpublish("weights/w1").ok());
  EXPECT_EQ(session_.Find("weights/w1").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(BufferTest, ListShowsTheSessionsBuffers) {
  const Buffer a = Make(1);
  const Buffer b = Make(2);
  const auto buffers = session_.ListBuffers();
  ASSERT_EQ(buffers->size(), 2);
  EXPECT_EQ(buffers->at(1).size_bytes(), 2);
}

}  // namespace
}  // namespace gemmd::client
