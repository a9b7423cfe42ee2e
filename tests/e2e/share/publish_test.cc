// Published buffers: shared by name within a tenant, read-only, outliving their session.

#include <set>

#include "absl/strings/str_replace.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/session_service.pb.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::Copy;
using client::Fill;
using client::OpList;
using client::Read;
using ::testing::Each;
using ::testing::HasSubstr;

class PublishTest : public E2eTest {
 protected:
  // A [4, 4] buffer of sevens under the name "weights/w0".
  client::Buffer PublishSevens() {
    client::Buffer buffer = MakeBuffer(session_, {4, 4});
    Must(session_.Execute(OpList().Add(Fill{buffer.tensor(), 7})));
    EXPECT_TRUE(session_.Publish(buffer, "weights/w0").ok());
    return buffer;
  }
};

TEST_F(PublishTest, AnotherSessionFindsTheBytes) {
  const client::Buffer owned = PublishSevens();
  client::Session other = Must(client_.OpenSession());
  const client::Buffer found = Must(other.Find("weights/w0"));
  EXPECT_NE(found.id(), owned.id());
  EXPECT_TRUE(found.read_only());
  EXPECT_THAT(FloatsOf(Must(other.Execute(OpList().Add(Read{found.tensor()})))), Each(7.0f));
}

TEST_F(PublishTest, ReadOnlyToFinderAndOwner) {
  client::Buffer owned = PublishSevens();
  client::Session other = Must(client_.OpenSession());
  client::Buffer found = Must(other.Find("weights/w0"));

  const auto by_finder = other.Execute(OpList().Add(Fill{found.tensor(), 1}));
  EXPECT_EQ(by_finder.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(by_finder.status().message()), HasSubstr("read-only"));
  const auto by_owner = session_.Execute(OpList().Add(Fill{owned.tensor(), 1}));
  EXPECT_EQ(by_owner.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(found.Upload(std::string(64, 'x')).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(FloatsOf(Must(other.Execute(OpList().Add(Read{found.tensor()})))), Each(7.0f));
}

TEST_F(PublishTest, OutlivesItsSession) {
  {
    client::Session owner = Must(client_.OpenSession());
    client::Buffer buffer = MakeBuffer(owner, {4, 4});
    Must(owner.Execute(OpList().Add(Fill{buffer.tensor(), 3})));
    ASSERT_TRUE(owner.Publish(buffer, "kept").ok());
    buffer.Release();
    ASSERT_TRUE(owner.Close().ok());
  }
  {
    const client::Buffer found = Must(session_.Find("kept"));
    EXPECT_THAT(FloatsOf(Must(session_.Execute(OpList().Add(Read{found.tensor()})))), Each(3.0f));
    ASSERT_TRUE(session_.Unpublish("kept").ok());
    // The name is gone, the claim stays.
    EXPECT_EQ(session_.Find("kept").status().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(FloatsOf(Must(session_.Execute(OpList().Add(Read{found.tensor()})))), Each(3.0f));
  }
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_).buffer_bytes == 0; }));
}

TEST_F(PublishTest, ATakenNameStaysWithItsOwner) {
  const client::Buffer first = PublishSevens();
  client::Buffer second = MakeBuffer(session_, {4, 4});
  EXPECT_EQ(session_.Publish(second, "weights/w0").code(), absl::StatusCode::kAlreadyExists);
  const client::Buffer found = Must(session_.Find("weights/w0"));
  EXPECT_THAT(FloatsOf(Must(session_.Execute(OpList().Add(Read{found.tensor()})))), Each(7.0f));
}

class TwoTenantsTest : public testing::Test {
 protected:
  TwoTenantsTest()
      : daemon_({.config = "tenants { name: \"red\" } tenants { name: \"blue\" } "
                           "tenants { name: \"default\" }",
                 .tenants = {"red", "blue"}}),
        red_(ConnectTo(daemon_, "red")),
        blue_(ConnectTo(daemon_, "blue")),
        red_session_(Must(red_.OpenSession())),
        blue_session_(Must(blue_.OpenSession())) {}

  Daemon daemon_;
  client::Client red_, blue_;
  client::Session red_session_, blue_session_;
};

// A refusal's text, with what it repeats of the request's own handle taken out.
std::string WithoutHandle(const absl::Status& status, const client::Handle& handle) {
  return absl::StrReplaceAll(status.message(), {{handle.ToHex().substr(0, 8), "HANDLE"}});
}

// What belongs to another tenant must answer exactly as what does not exist, down to the text.
TEST_F(TwoTenantsTest, AnothersBufferIsLikeNone) {
  const client::Buffer red = MakeBuffer(red_session_, {4, 4});
  const client::Buffer blue = MakeBuffer(blue_session_, {4, 4});
  const client::Handle none = Must(client::Handle::FromBytes(std::string(16, '\x5a')));

  const auto anothers = blue_session_.GetBuffer(red.id());
  const auto nothing = blue_session_.GetBuffer(none);
  EXPECT_EQ(anothers.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(WithoutHandle(anothers.status(), red.id()), WithoutHandle(nothing.status(), none));
  EXPECT_EQ(client::ReasonOf(anothers.status()), client::ReasonOf(nothing.status()));

  const auto copy = [&](const client::Handle& from) {
    const client::Tensor source(from, client::DType::kF32, {4, 4});
    return blue_session_.Execute(OpList().Add(Copy{source, blue.tensor()})).status();
  };
  EXPECT_EQ(copy(red.id()).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(WithoutHandle(copy(red.id()), red.id()), WithoutHandle(copy(none), none));
  EXPECT_EQ(blue_session_.DeleteBuffers({red.id()}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(red_session_.GetBuffer(red.id()).ok());
}

TEST_F(TwoTenantsTest, AnothersSessionIsLikeNone) {
  const auto anothers = blue_.AttachSession(red_session_.id());
  const auto nothing = blue_.AttachSession(Must(client::Handle::FromBytes(std::string(16, 'z'))));
  EXPECT_EQ(anothers.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(anothers.status().message(), nothing.status().message());
  // The tests run as the daemon's own user, an admin: it may know that there are both, and whose.
  std::multiset<std::string> tenants;
  for (const auto& session : Must(blue_.ListSessions())) tenants.insert(session.tenant());
  EXPECT_EQ(tenants, (std::multiset<std::string>{"blue", "red"}));
}

TEST_F(TwoTenantsTest, NamesBelongToTheTenant) {
  client::Buffer red = MakeBuffer(red_session_, {4, 4});
  client::Buffer blue = MakeBuffer(blue_session_, {4, 4});
  ASSERT_TRUE(red_session_.Publish(red, "w").ok());
  EXPECT_EQ(blue_session_.Find("w").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(blue_session_.Publish(blue, "w").ok());
}

TEST_F(TwoTenantsTest, AnothersQuotaIsNotMine) {
  daemon_.Reload(
      "tenants { name: \"red\" limits { max_buffers: 1 } } tenants { name: \"blue\" } "
      "tenants { name: \"default\" }");
  // Until the reload has taken effect red may create as many as it likes.
  const client::Buffer first = MakeBuffer(red_session_, {4});
  absl::Status second;
  ASSERT_TRUE(WaitUntil([&] {
    second = red_session_.CreateBuffer({.size_bytes = 16}).status();
    red_session_.FlushDeletions();
    return !second.ok();
  }));
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(client::ReasonOf(second), "BUFFER_LIMIT");
  EXPECT_TRUE(blue_session_.CreateBuffer({.size_bytes = 16}).ok());
}

}  // namespace
}  // namespace gemmd::e2e
