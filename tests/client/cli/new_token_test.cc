#include "client/cli/new_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(NewTokenTest, TokensDifferAndAreLongEnoughForTheServer) {
  const std::string one = *NewToken(), two = *NewToken();
  EXPECT_NE(one, two);
  EXPECT_THAT(one, MatchesRegex("[0-9a-f]{64}"));
}

TEST(NewTokenTest, TheLineHasTheHashAndNotTheToken) {
  const TokenLine line = {.name = "ci", .tenant = "batch", .role = "user"};
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(
      Text(line, "abc"),
      "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad ci batch user");
  EXPECT_THAT(Text(line, "s3cret"), Not(HasSubstr("s3cret")));
}

TEST(NewTokenTest, AnExpiryIsInUniversalTime) {
  const TokenLine line = {.name = "ci",
                          .tenant = "batch",
                          .role = "admin",
                          .expires = absl::FromUnixSeconds(1893456000)};
  EXPECT_THAT(Text(line, "abc"), HasSubstr(" admin expires=2030-01-01T00:00:00Z"));
}

TEST(NewTokenTest, WhatWouldNotBeOneWordIsRefused) {
  const TokenLine good = {.name = "ci.build-7", .tenant = "batch-2", .role = "user"};
  EXPECT_TRUE(Check(good).ok());
  for (const char* name : {"", "two words", "line\nbreak", "com#ment", "tab\t", "\xc3\xa9"}) {
    TokenLine line = good;
    line.name = name;
    EXPECT_EQ(Check(line).code(), absl::StatusCode::kInvalidArgument) << name;
  }
  TokenLine line = good;
  line.name = std::string(65, 'n');
  EXPECT_FALSE(Check(line).ok());
  for (const char* tenant : {"", "Batch", "a b", "a_b"}) {
    line = good;
    line.tenant = tenant;
    EXPECT_FALSE(Check(line).ok()) << tenant;
  }
}

}  // namespace
}  // namespace gemmd::cli
