// A listener's files are looked at whole, whatever replaces them meanwhile.

#include "server/service/listen/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/time/clock.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/process.h"

namespace gemmd::server {
namespace {

using e2e::Authority;
using e2e::Identity;

class TlsFilesTest : public testing::Test {
 protected:
  e2e::TempDir dir_;
  Authority authority_{"servers"};
  const Identity one_ = authority_.Issue({.common_name = "gemmd"});
  const Identity two_ = authority_.Issue({.common_name = "gemmd"});
  e2e::SecretFolder folder_{dir_.File("tls")};
  const TlsConfig config_ = {.certificate_file = folder_.File("tls.crt"),
                             .key_file = folder_.File("tls.key")};
};

TEST_F(TlsFilesTest, APairInTheMiddleOfItsRenewalIsNotRefused) {
  folder_.Put({{"tls.crt", one_.certificate}, {"tls.key", one_.key}});
  const e2e::Renewals renewals(folder_, one_, two_);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(CheckTlsFiles(config_), absl::OkStatus());
}

TEST_F(TlsFilesTest, AFolderInAFilesPlaceIsRefused) {
  const absl::Status refused =
      CheckTlsFiles({.certificate_file = dir_.path(), .key_file = config_.key_file});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("Is a directory"));
}

TEST_F(TlsFilesTest, AKeyThatStaysAnothersIsRefused) {
  folder_.Put({{"tls.crt", one_.certificate}, {"tls.key", two_.key}});
  const absl::Status refused = CheckTlsFiles(config_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("is not the key of"));
}

TEST_F(TlsFilesTest, WhatIsWrongIsToldOnceItStaysAndOnlyOnce) {
  folder_.Put({{"tls.crt", one_.certificate}, {"tls.key", one_.key}});
  ListenerConfig listener{.tls = config_};
  listener.tls->watch = absl::ZeroDuration();
  const auto files = TlsFiles::Start(listener);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ((*files)->Poll(), std::nullopt);
  const auto expect_told = [&](const std::string& certificate, const std::string& key,
                               const std::string& told) {
    folder_.Put({{"tls.crt", certificate}, {"tls.key", key}});
    EXPECT_EQ((*files)->Poll(), std::nullopt) << "it may be half of a renewal";
    const auto refused = (*files)->Poll();
    ASSERT_TRUE(refused.has_value());
    EXPECT_THAT(std::string(refused->message()), ::testing::HasSubstr(told));
    for (int i = 0; i < 3; ++i) EXPECT_EQ((*files)->Poll(), std::nullopt);
  };
  expect_told("junk", one_.key, "tls.crt: has no PEM certificate");
  expect_told(one_.certificate, "junk", "tls.key: has no PEM key");
  expect_told(one_.certificate, two_.key, "is not the key of");
  expect_told(one_.certificate + two_.certificate.substr(0, 300), one_.key,
              "tls.crt: has a damaged certificate");
  EXPECT_GT((*files)->expiry(), absl::Now());
  // Right again, and right anew.
  folder_.Put({{"tls.crt", one_.certificate}, {"tls.key", one_.key}});
  EXPECT_EQ((*files)->Poll(), absl::OkStatus());
  EXPECT_EQ((*files)->Poll(), std::nullopt);
  folder_.Put({{"tls.crt", two_.certificate}, {"tls.key", two_.key}});
  EXPECT_EQ((*files)->Poll(), absl::OkStatus());
  EXPECT_EQ((*files)->Poll(), std::nullopt);
}

}  // namespace
}  // namespace gemmd::server
