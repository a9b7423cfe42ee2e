#include "server/engine/sessions/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "server/engine/reason.h"
#include "server/engine/sessions/token_file.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {
namespace {

using testing::HasSubstr;

const std::string kToken = "0123456789abcdef0123456789abcdef";
const std::string kOther = "fedcba9876543210fedcba9876543210";

std::string Line(const std::string& token, const std::string& rest) {
  const TokenHash hash = HashToken(token);
  return absl::StrCat(
      "sha256:", absl::BytesToHexString({reinterpret_cast<const char*>(hash.data()), hash.size()}),
      " ", rest, "\n");
}

class AccessTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/gemmd_access_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    config_.token_file = folder_ + "/tokens";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void WriteTokens(const std::string& text) const { std::ofstream(config_.token_file) << text; }
  void Start() {
    auto access = Access::Create(config_, tenants_, clock_, log_, metrics_);
    ASSERT_TRUE(access.ok()) << access.status();
    access_ = *std::move(access);
  }
  void PollLater() {
    clock_.Advance(absl::Seconds(1));
    access_->Poll();
  }
  std::string RefusalOf(const std::string& token) const {
    const auto principal = access_->ByToken(token);
    EXPECT_EQ(principal.status().code(), absl::StatusCode::kUnauthenticated);
    return ReasonOf(principal.status());
  }
  double Loads(const char* result) { return metrics_.TokenFileLoads(result).Value(); }

  std::string folder_;
  AuthConfig config_;
  std::vector<TenantConfig> tenant_configs_ = {{.name = "default"}, {.name = "red"}};
  TenantDirectory tenants_{tenant_configs_};
  FakeClock clock_;
  std::string lines_;
  Log log_{{.format = LogFormat::kText}, [this](std::string_view line) { lines_ += line; }};
  Metrics metrics_{"test"};
  std::unique_ptr<Access> access_;
};

TEST_F(AccessTest, TokenGivesTenantAndRole) {
  WriteTokens(Line(kToken, "ci red admin"));
  Start();
  const auto principal = access_->ByToken(kToken);
  ASSERT_TRUE(principal.ok()) << principal.status();
  EXPECT_EQ((*principal)->name, "token:ci");
  EXPECT_EQ((*principal)->tenant, tenants_.Find("red"));
  EXPECT_EQ((*principal)->role, Role::kAdmin);
  for (const std::string& wrong :
       {std::string(), kOther, kToken + "0", kToken.substr(1), std::string(5000, 'a')}) {
    EXPECT_EQ(RefusalOf(wrong), "BAD_TOKEN");
  }
}

TEST_F(AccessTest, TokenExpires) {
  WriteTokens(Line(kToken, "ci red user expires=2027-01-15T08:00:10Z"));  // ten seconds ahead
  Start();
  clock_.Advance(absl::Milliseconds(9999));
  EXPECT_TRUE(access_->ByToken(kToken).ok());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(RefusalOf(kToken), "EXPIRED_TOKEN");
}

TEST_F(AccessTest, ANewTokenFileIsTakenAndAWrongOneIsNot) {
  WriteTokens(Line(kToken, "ci red user"));
  Start();
  WriteTokens(Line(kToken, "ci red user") + Line(kOther, "ci2 red user"));
  EXPECT_EQ(RefusalOf(kOther), "BAD_TOKEN") << "not read yet";
  PollLater();
  EXPECT_TRUE(access_->ByToken(kToken).ok());
  EXPECT_TRUE(access_->ByToken(kOther).ok());
  EXPECT_EQ(metrics_.Tokens().Value(), 2);
  EXPECT_EQ(Loads("ok"), 1);
  WriteTokens("nonsense");
  PollLater();
  PollLater();
  EXPECT_TRUE(access_->ByToken(kOther).ok());
  EXPECT_EQ(Loads("invalid"), 1) << "counted once, not at every look";
  EXPECT_THAT(lines_, HasSubstr("tokens_invalid"));
  std::filesystem::remove(config_.token_file);
  PollLater();
  PollLater();
  EXPECT_TRUE(access_->ByToken(kOther).ok());
  EXPECT_EQ(Loads("invalid"), 2);
  WriteTokens(Line(kOther, "ci2 red user"));
  PollLater();
  EXPECT_EQ(RefusalOf(kToken), "BAD_TOKEN") << "taken back";
  EXPECT_TRUE(access_->ByToken(kOther).ok());
}

TEST_F(AccessTest, ATokenIsTakenBackThoughTheClockIsSetBack) {
  WriteTokens(Line(kToken, "ci red user"));
  Start();
  PollLater();
  clock_.Advance(-absl::Hours(1));
  WriteTokens("");
  access_->Poll();
  EXPECT_EQ(RefusalOf(kToken), "BAD_TOKEN");
}

TEST_F(AccessTest, StartsOnlyWithATokenFileThatIsRight) {
  auto missing = Access::Create(config_, tenants_, clock_, log_, metrics_);
  EXPECT_THAT(std::string(missing.status().message()),
              testing::AllOf(HasSubstr("auth.token_file"), HasSubstr(config_.token_file)));
  WriteTokens("x");
  EXPECT_FALSE(Access::Create(config_, tenants_, clock_, log_, metrics_).ok());
  EXPECT_FALSE(Access::Check(config_, tenant_configs_).ok());
  WriteTokens(Line(kToken, "ci red user"));
  EXPECT_TRUE(Access::Check(config_, tenant_configs_).ok());
  EXPECT_FALSE(Access::Check(config_, {{.name = "default"}}).ok()) << "no tenant red";
}

TEST_F(AccessTest, CertificatesGoByTheirFirstNameWithARule) {
  config_ = {.certificates = {{.name = "spiffe://a/worker", .tenant = "red"},
                              {.name = "worker", .role = Role::kObserver}}};
  Start();
  const auto by_uri = access_->ByCertificate({"spiffe://a/worker", "worker"});
  ASSERT_TRUE(by_uri.ok());
  EXPECT_EQ((*by_uri)->tenant->name(), "red");
  const auto by_name = access_->ByCertificate({"other", "worker"});
  ASSERT_TRUE(by_name.ok());
  EXPECT_EQ((*by_name)->role, Role::kObserver);
  EXPECT_EQ(ReasonOf(access_->ByCertificate({"Worker"}).status()), "UNKNOWN_CERTIFICATE");
  EXPECT_EQ(ReasonOf(access_->ByCertificate({}).status()), "UNKNOWN_CERTIFICATE");
}

TEST_F(AccessTest, ReloadChangesRules) {
  config_ = {.unix_peers = {{.uid = 1000, .tenant = "red"}}};
  Start();
  EXPECT_EQ(access_->ByUid(1000)->name, "uid:1000");
  EXPECT_EQ(access_->ByUid(1001), nullptr);
  access_->Reconfigure({.unix_peers = {{.uid = 1001, .role = Role::kAdmin}}});
  EXPECT_EQ(access_->ByUid(1000), nullptr);
  EXPECT_EQ(access_->ByUid(1001)->role, Role::kAdmin);
}

}  // namespace
}  // namespace gemmd::server
