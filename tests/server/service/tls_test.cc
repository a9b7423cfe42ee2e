// A listener's files are looked at whole, whatever replaces them meanwhile.

#include "server/service/listen/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace gemmd::server
