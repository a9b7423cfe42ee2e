// gemmctl against a real daemon: what it prints, what it writes, and what it exits with.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A float32 .npy file as numpy writes it.
std::string Npy(int64_t rows, int64_t cols, const std::string& data) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(rows) + ", " + std::to_string(cols) + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 255) +
         static_cast<char>(length >> 8) + header + data;
}

std::string RandomNpy(int64_t rows, int64_t cols) {
  std::mt19937 random{std::random_device()()};
  std::normal_distribution<float> normal;
  std::vector<float> values(rows * cols);
  for (float& value : values) value = normal(random);
  return Npy(rows, cols, Floats(values));
}

class GemmctlTest : public testing::Test {
 protected:
  GemmctlTest() {
    WriteFile(File("A.npy"), RandomNpy(67, 300));
    WriteFile(File("B.npy"), RandomNpy(300, 131));
  }
  std::string File(const std::string& name) const { return dir_.File(name); }

  Finished Ctl(std::vector<std::string> args) {
    args.insert(args.begin(), GEMMCTL_PATH);
    args.insert(args.end(), {"--server", daemon_.target()});
    return RunToEnd(args);
  }
  json CtlJson(std::vector<std::string> args) {
    args.push_back("--json");
    const Finished done = Ctl(args);
    EXPECT_EQ(done.status, 0) << done.err;
    return json::parse(done.out, nullptr, false);
  }
  // Refused with that exit status, and with these words; nothing stays on the daemon.
  void ExpectRefused(const std::vector<std::string>& args, int status, const std::string& words) {
    const Finished done = Ctl(args);
    EXPECT_EQ(done.status, status) << done.err;
    EXPECT_THAT(done.err, HasSubstr(words));
    EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == Holdings(); }))
        << testing::PrintToString(HoldingsOf(daemon_));
  }

  TempDir dir_;
  Daemon daemon_;
};

TEST_F(GemmctlTest, TheFirstServerThatAnswersIsTaken) {
  const std::string nobody = "unix:" + File("nobody.sock");
  const auto info = [&](const std::string& servers) {
    return RunToEnd({GEMMCTL_PATH, "info", "--json", "--timeout", "1s", "--server", servers});
  };
  EXPECT_EQ(info(daemon_.target() + "," + nobody).status, 0);
  EXPECT_EQ(info(nobody + "," + daemon_.target()).status, 0);
  const Finished none = info(nobody + "," + nobody);
  EXPECT_EQ(none.status, 4);
  EXPECT_THAT(none.err, HasSubstr("nobody.sock"));
}

TEST_F(GemmctlTest, TheWholeJob) {
  const json done = CtlJson({"matmul", File("A.npy"), File("B.npy"), "-o", File("D.npy"),
                             "--quantize", "fp8-block", "--verify"});
  EXPECT_EQ(done["m"], 67);
  EXPECT_EQ(done["n"], 131);
  EXPECT_EQ(done["k"], 300);
  EXPECT_EQ(done["ops"].size(), 3);
  EXPECT_TRUE(done["verify"]["ok"].get<bool>());
  EXPECT_LT(done["verify"]["relative_error"], 5e-3);
  EXPECT_GT(done["verify"]["relative_error"], 0);
  EXPECT_EQ(done["verify"]["rows_checked"], 67);
  // 2-byte elements behind a header of a multiple of 64 bytes.
  const auto size = std::filesystem::file_size(File("D.npy"));
  EXPECT_EQ((size - 67 * 131 * 2) % 64, 0u);
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == Holdings(); }));
}

TEST_F(GemmctlTest, Float32IsAlmostExact) {
  const json done =
      CtlJson({"matmul", File("A.npy"), File("B.npy"), "-o", File("D.npy"), "--verify"});
  EXPECT_LT(done["verify"]["relative_error"], 1e-5);
}

TEST_F(GemmctlTest, AKnownProduct) {
  WriteFile(File("x.npy"), Npy(1, 2, Floats({3, 4})));
  WriteFile(File("w.npy"), Npy(2, 1, Floats({10, 1})));
  EXPECT_EQ(Ctl({"matmul", File("x.npy"), File("w.npy"), "-o", File("y.npy")}).status, 0);
  const std::string y = ReadFile(File("y.npy"));
  EXPECT_EQ(y.substr(y.size() - 4), Floats({34}));
}

TEST_F(GemmctlTest, UploadFindDownloadUnpublish) {
  const json put = CtlJson({"upload", File("A.npy"), "--name", "weights/a"});
  EXPECT_EQ(HoldingsOf(daemon_).buffers, 1);
  EXPECT_THAT(Ctl({"buffers", "weights/a"}).out, HasSubstr("weights/a"));
  EXPECT_EQ(Ctl({"download", "weights/a", File("back.npy")}).status, 0);
  EXPECT_EQ(ReadFile(File("back.npy")).substr(128), ReadFile(File("A.npy")).substr(128));
  EXPECT_EQ(Ctl({"unpublish", "weights/a"}).status, 0);
  ExpectRefused({"download", "weights/a", File("again.npy")}, 5, "weights/a");
  EXPECT_FALSE(std::filesystem::exists(File("again.npy")));
}

TEST_F(GemmctlTest, PatternsOfPublishedNames) {
  for (const char* name : {"m/0/up", "m/0/down", "m/1/up", "other"}) {
    CtlJson({"upload", File("A.npy"), "--name", name});
  }
  const json listed = CtlJson({"published", "m/*"});
  ASSERT_EQ(listed["published"].size(), 3);
  EXPECT_EQ(listed["published"][0]["published_name"], "m/0/down");
  EXPECT_EQ(listed["published"][0]["shape"], json::parse("[67, 300]"));
  EXPECT_EQ(listed["size_bytes"], 3 * 67 * 300 * 4);
  EXPECT_THAT(Ctl({"published"}).out, AllOf(HasSubstr("other"), HasSubstr("4 names")));

  EXPECT_EQ(CtlJson({"unpublish", "*/up", "--dry-run"})["would_unpublish"].size(), 2);
  EXPECT_EQ(CtlJson({"published"})["published"].size(), 4);
  EXPECT_EQ(CtlJson({"unpublish", "m/[01]/up"})["unpublished"],
            json::parse(R"(["m/0/up", "m/1/up"])"));
  EXPECT_EQ(CtlJson({"published"})["published"].size(), 2);
  EXPECT_EQ(CtlJson({"unpublish", "*"})["unpublished"].size(), 2);
  ExpectRefused({"unpublish", "m/*/up"}, 5, "matches 'm/*/up'; there are 0");
  ExpectRefused({"published", "m/[01"}, 2, "no ] closes");
}

TEST_F(GemmctlTest, LooksAround) {
  EXPECT_THAT(Ctl({"info"}).out, AllOf(HasSubstr(TestDevice()), HasSubstr("default")));
  const json device = CtlJson({"info"})["devices"][0];
  EXPECT_GT(device["free_bytes"], 0);
  EXPECT_EQ(device["free_bytes"],
            device["memory_bytes"].get<int64_t>() - device["used_bytes"].get<int64_t>());
  EXPECT_TRUE(device["numa_node"].is_null() || device["numa_node"] >= 0);
  EXPECT_TRUE(device["sensors"].is_null() || device["sensors"]["memory_total_bytes"] > 0);
  EXPECT_EQ(CtlJson({"health"})["serving"], true);
  EXPECT_EQ(CtlJson({"health", TestDevice()})["serving"], true);
  EXPECT_GT(CtlJson({"kernels"})["kernels"].size(), 1u);
  EXPECT_THAT(
      Ctl({"explain", "--m", "64", "--n", "4096", "--k", "7168", "--quantize", "fp8-block"}).out,
      HasSubstr("*"));
  EXPECT_THAT(Ctl({"explain", "--groups", "8", "--m", "64", "--quantize", "fp8-block", "--layout",
                   "ends", "--apart", "--gate", "silu"})
                  .out,
              AllOf(HasSubstr("groups=8 ends m=64"), HasSubstr("apart gate=silu"),
                    HasSubstr("grouped_matmul")));
  ExpectRefused({"explain", "--groups", "8", "--kn"}, 2, "--kn does not go with --groups");
  client::Client client = ConnectTo(daemon_);
  client::Session session = Must(client.OpenSession({.label = "looked-at"}));
  EXPECT_THAT(Ctl({"sessions"}).out, HasSubstr("looked-at"));
}

TEST_F(GemmctlTest, LyingFilesAreRefused) {
  const std::string good = ReadFile(File("A.npy"));
  const auto matmul = [&](const std::string& name) {
    return std::vector<std::string>{"matmul", File(name), File("B.npy"), "-o", File("D.npy")};
  };
  WriteFile(File("cut.npy"), good.substr(0, good.size() - 1));
  ExpectRefused(matmul("cut.npy"), 3, "cut.npy");
  WriteFile(File("long.npy"), good + "x");
  ExpectRefused(matmul("long.npy"), 3, "long.npy");
  WriteFile(File("huge.npy"), Npy(1LL << 40, 1LL << 40, ""));
  ExpectRefused(matmul("huge.npy"), 3, "huge.npy");
  WriteFile(File("text.npy"), "not a matrix");
  ExpectRefused(matmul("text.npy"), 3, "text.npy");
  WriteFile(File("lie.safetensors"), std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}");
  ExpectRefused(matmul("lie.safetensors"), 3, "lie.safetensors");
  ExpectRefused(matmul("absent.npy"), 3, "absent.npy");
  EXPECT_FALSE(std::filesystem::exists(File("D.npy")));
}

TEST_F(GemmctlTest, WrongUseIsRefused) {
  ExpectRefused({"matmul", File("B.npy"), File("B.npy")}, 3, "131");
  ExpectRefused({"matmul", File("A.npy")}, 2, "B");
  ExpectRefused({"matmul", File("A.npy"), File("B.npy"), "--quantise", "x"}, 2,
                "did you mean '--quantize'");
  ExpectRefused({"matmul", File("A.npy"), File("B.npy"), "--kernel", "none"}, 5, "none");
  ExpectRefused({"matmul", File("A.npy"), File("B.npy"), "--device", "cuda:0"}, 5, "cuda:0");
}

TEST(GemmctlAloneTest, SaysWhenNobodyAnswers) {
  TempDir dir;
  const Finished done = RunToEnd(
      {GEMMCTL_PATH, "health", "--server", "unix:" + dir.File("none.sock"), "--timeout", "200ms"});
  EXPECT_EQ(done.status, 4);
  EXPECT_THAT(done.err, HasSubstr("none.sock"));
}

TEST(GemmctlAloneTest, ChecksAConfig) {
  TempDir dir;
  WriteFile(dir.File("good"), "listeners { address: \"unix-abstract:x\" }");
  WriteFile(dir.File("bad"), "listeners { address: \"unix-abstract:x\" } colour: 3");
  const auto check = [&](const std::string& name) {
    return RunToEnd(
        {GEMMCTL_PATH, "config", "check", dir.File(name), "--gemmd", FindProgram(GEMMD_PATH)});
  };
  EXPECT_EQ(check("good").status, 0);
  const Finished bad = check("bad");
  EXPECT_NE(bad.status, 0);
  EXPECT_THAT(bad.out + bad.err, HasSubstr("colour"));
}

TEST(GemmctlKernelsTest, SaysWhyOneIsOff) {
  Daemon daemon(
      {.devices = "devices { name: \"cpu:0\" threads: 1 disabled_kernels: \"cpu_i8_exact\" }"});
  const auto kernels = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {GEMMCTL_PATH, "kernels", "--server", daemon.target()};
    args.insert(args.end(), more.begin(), more.end());
    return RunToEnd(args).out;
  };
  EXPECT_THAT(kernels({}), HasSubstr("off: it is disabled on this device"));
  const json document = json::parse(kernels({"--json"}), nullptr, false);
  int off = 0;
  for (const json& kernel : document["kernels"]) {
    EXPECT_EQ(kernel["why_off"] != "", kernel["name"] == "cpu_i8_exact") << kernel;
    EXPECT_EQ(kernel["quarantined"], false);
    off += kernel["why_off"] != "";
  }
  EXPECT_EQ(off, 1);
}

}  // namespace
}  // namespace gemmd::e2e
