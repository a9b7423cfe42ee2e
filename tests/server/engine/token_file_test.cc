#include "server/engine/sessions/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace gemmd::server {
namespace {

using testing::HasSubstr;
using testing::Not;

// Of "abc", FIPS 180-2's example.
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

absl::StatusOr<std::vector<TokenEntry>> Parse(const std::string& text) {
  return ParseTokenFile(text, {"default", "red"});
}

TEST(TokenFileTest, HashIsSha256) {
  const TokenHash hash = HashToken("abc");
  EXPECT_EQ(absl::BytesToHexString({reinterpret_cast<const char*>(hash.data()), hash.size()}),
            kAbc);
}

TEST(TokenFileTest, LinesCommentsAndBlanks) {
  const auto entries =
      Parse(absl::StrCat("# who may call\n\n  sha256:", kAbc,
                         "\tci  red observer expires=2027-01-01T00:00:00Z # CI\r\n",
                         "sha256:", std::string(64, 'A'), " b default admin"));
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2);
  EXPECT_EQ((*entries)[0].hash, HashToken("abc"));
  EXPECT_EQ((*entries)[0].name, "ci");
  EXPECT_EQ((*entries)[0].tenant, "red");
  EXPECT_EQ((*entries)[0].role, Role::kObserver);
  EXPECT_EQ((*entries)[0].expires, absl::FromUnixSeconds(1798761600));
  EXPECT_EQ((*entries)[1].role, Role::kAdmin);
  EXPECT_EQ((*entries)[1].expires, absl::InfiniteFuture());
  EXPECT_EQ(Parse("")->size(), 0);
}

TEST(TokenFileTest, WrongLinesAreNamedAndHashesAreNot) {
  const std::string hash = absl::StrCat("sha256:", kAbc);
  const std::pair<std::string, std::string> cases[] = {
      {hash, "line 1: has 1 words"},
      {hash + " a default user expires=2027-01-01T00:00:00Z more", "has 6 words"},
      {absl::StrCat(kAbc, " a default user"), "not a SHA-256"},
      {hash + "0 a default user", "not a SHA-256"},
      {"\n" + hash.substr(0, 70) + "x a default user", "line 2: "},
      {hash + " " + std::string(65, 'n') + " default user", "1 to 64"},
      {hash + " a\x1b[31m default user", "printable"},
      {hash + " a blue user", "\"blue\""},
      {hash + " a default root", "\"root\""},
      {hash + " a default user expires=tomorrow", "expires=2027"},
      {hash + " a default user 2027-01-01T00:00:00Z", "is no expiry"},
      {hash + " a default user\n" + hash + " b red admin", "line 2: the same token"},
  };
  for (const auto& [text, part] : cases) {
    const auto entries = Parse(text);
    ASSERT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument) << text;
    const std::string message(entries.status().message());
    EXPECT_THAT(message, HasSubstr(part));
    EXPECT_THAT(message, Not(HasSubstr(std::string(kAbc).substr(0, 12)))) << "shows the hash";
    EXPECT_THAT(message, Not(HasSubstr("\x1b")));
  }
}

}  // namespace
}  // namespace gemmd::server
