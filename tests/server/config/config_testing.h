// Shorthand for tests of config rules.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/config/load.h"

namespace gemmd::server {

// A file with one listener and `rest`.
inline std::string WithListener(const std::string& rest) {
  return absl::StrCat("listeners { address: \"127.0.0.1:0\" }\n", rest);
}

// The error of a file with one listener and `rest`; fails the test when there is none.
inline std::string ErrorOf(const std::string& rest) {
  const auto config = ParseConfig(WithListener(rest));
  EXPECT_FALSE(config.ok()) << rest;
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

// The Config of such a file; fails the test and gives an empty one on an error.
inline ParsedConfig ConfigOf(const std::string& rest) {
  auto config = ParseConfig(WithListener(rest));
  EXPECT_TRUE(config.ok()) << rest << "\n" << config.status();
  return config.ok() ? *std::move(config) : ParsedConfig();
}

// One message that breaks a rule: it has to begin with the path and hold the value, the limit and
// the remedy.
struct BadField {
  std::string text;
  std::string path;
  std::vector<std::string> parts;
};

inline void ExpectErrors(const std::vector<BadField>& fields) {
  for (const BadField& field : fields) {
    const std::string error = ErrorOf(field.text);
    EXPECT_THAT(error, testing::StartsWith(absl::StrCat(field.path, ": "))) << field.text;
    for (const std::string& part : field.parts) EXPECT_THAT(error, testing::HasSubstr(part));
    EXPECT_THAT(error, testing::HasSubstr("; ")) << "no remedy: " << error;
  }
}

}  // namespace gemmd::server
