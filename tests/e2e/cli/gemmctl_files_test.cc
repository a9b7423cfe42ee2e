// What gemmctl says about numbers, and what it does to files that are there: its figures are those
// of float64 arithmetic, and it loses nobody's tensors.

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// An .npy file as numpy writes it.
std::string Npy(const std::string& descr, int64_t rows, int64_t cols, const std::string& data) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" +
                       std::to_string(rows) + ", " + std::to_string(cols) + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 255) +
         static_cast<char>(length >> 8) + header + data;
}

template <typename T>
std::string Raw(const std::vector<double>& values) {
  const std::vector<T> narrow(values.begin(), values.end());
  return std::string(reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(T));
}

std::vector<double> Normal(int64_t count) {
  static std::mt19937 random{std::random_device()()};
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

// ||got - want|| / ||want||
double RelativeError(const std::vector<double>& got, const std::vector<double>& want) {
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(error / size);
}

constexpr int64_t kM = 67, kN = 131, kK = 300;

// a [m, k] b [k, n] in float64.
std::vector<double> Product(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> d(kM * kN);
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t l = 0; l < kK; ++l) {
      for (int64_t j = 0; j < kN; ++j) d[i * kN + j] += a[i * kK + l] * b[l * kN + j];
    }
  }
  return d;
}

// The elements of an .npy file of `count`.
template <typename T>
std::vector<double> Elements(const std::string& file, int64_t count, double (*decode)(T)) {
  std::vector<T> raw(count);
  std::memcpy(raw.data(), file.data() + file.size() - count * sizeof(T), count * sizeof(T));
  std::vector<double> values;
  for (T one : raw) values.push_back(decode(one));
  return values;
}

double FromBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
double FromF32(float value) { return value; }

class GemmctlFilesTest : public testing::Test {
 protected:
  std::string File(const std::string& name) const { return dir_.File(name); }

  Finished Ctl(std::vector<std::string> args) {
    args.insert(args.begin(), GEMMCTL_PATH);
    args.insert(args.end(), {"--server", daemon_.target()});
    return RunToEnd(args);
  }
  Finished Shell(const std::string& line) { return RunToEnd({"/bin/sh", "-c", line}); }
  // For the shell.
  std::string CtlLine(const std::string& words) const {
    return FindProgram(GEMMCTL_PATH) + " " + words + " --server " + daemon_.target();
  }

  TempDir dir_;
  Daemon daemon_;
};

TEST_F(GemmctlFilesTest, VerifyTellsTheKernelsErrorAndTheFilesApart) {
  const std::vector<double> a = Normal(kM * kK), b = Normal(kK * kN);
  WriteFile(File("A.npy"), Npy("<f8", kM, kK, Raw<double>(a)));
  WriteFile(File("B.npy"), Npy("<f8", kK, kN, Raw<double>(b)));
  const std::vector<double> exact = Product(a, b);
  for (const char* quantize : {"fp8-block", "fp8-tensor", "int8-row", "int8-block"}) {
    const Finished done = Ctl({"matmul", File("A.npy"), File("B.npy"), "-o", File("D.npy"),
                               "--force", "--verify", "--json", "--quantize", quantize});
    ASSERT_EQ(done.status, 0) << done.err;
    const json verify = json::parse(done.out)["verify"];
    const double seen =
        RelativeError(Elements<uint16_t>(ReadFile(File("D.npy")), kM * kN, FromBf16), exact);
    const double said = verify["against_files"]["relative_error"];
    EXPECT_NEAR(said, seen, 0.01 * seen) << quantize;
    EXPECT_GT(said, 2 * verify["relative_error"].get<double>()) << quantize;
    EXPECT_LT(verify["relative_error"], verify["bound"]) << quantize;
  }
  const Finished text =
      Ctl({"matmul", File("A.npy"), File("B.npy"), "--verify", "--quantize", "fp8-block"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("the kernel: relative error"),
                              HasSubstr("against the files: relative error"),
                              HasSubstr("quantised to fp8-block")));
}

TEST_F(GemmctlFilesTest, VerifyCountsWhatNarrowingCost) {
  // 1 + 2^-26 is no float32: what is lost of it shows against the files alone.
  const std::vector<double> a(kM * kK, 1 + std::ldexp(1, -26)), b(kK * kN, 1);
  WriteFile(File("A.npy"), Npy("<f8", kM, kK, Raw<double>(a)));
  WriteFile(File("B.npy"), Npy("<f8", kK, kN, Raw<double>(b)));
  const Finished done =
      Ctl({"matmul", File("A.npy"), File("B.npy"), "-o", File("D.npy"), "--verify", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  const json verify = json::parse(done.out)["verify"];
  EXPECT_EQ(verify["relative_error"], 0);
  const double seen =
      RelativeError(Elements<float>(ReadFile(File("D.npy")), kM * kN, FromF32), Product(a, b));
  EXPECT_NEAR(verify["against_files"]["relative_error"], seen, 0.01 * seen);
}

TEST_F(GemmctlFilesTest, Float64WarnsOnceAndIntegersAreRefused) {
  WriteFile(File("A.npy"), Npy("<f8", 2, 2, Raw<double>({1, 2, 3, 4})));
  WriteFile(File("B.npy"), Npy("<f8", 2, 2, Raw<double>({1, 2, 3, 1e300})));
  const Finished wide = Ctl({"matmul", File("A.npy"), File("B.npy")});
  EXPECT_EQ(wide.status, 0) << wide.err;
  const size_t first = wide.err.find("warning");
  ASSERT_NE(first, std::string::npos) << wide.err;
  EXPECT_EQ(wide.err.find("warning", first + 8), std::string::npos) << wide.err;
  EXPECT_THAT(wide.err, AllOf(HasSubstr("A.npy"), HasSubstr("B.npy"), HasSubstr("float64"),
                              HasSubstr("1 of the values became infinite")));
  for (const char* descr : {"<i8", "<i4", "<i2", "<u8", "|u1", "|b1"}) {
    const std::string size(1, descr[1] == 'b' ? '1' : descr[2]);
    WriteFile(File("I.npy"), Npy(descr, 2, 2, std::string(4 * std::stoi(size), '\1')));
    for (const std::vector<std::string>& args :
         {std::vector<std::string>{"matmul", File("A.npy"), File("I.npy")},
          std::vector<std::string>{"upload", File("I.npy")}}) {
      const Finished refused = Ctl(args);
      EXPECT_EQ(refused.status, 3) << descr;
      EXPECT_THAT(refused.err, AllOf(HasSubstr(descr), HasSubstr("astype"))) << descr;
    }
  }
}

TEST_F(GemmctlFilesTest, ACheckpointIsNeverReplacedByATensor) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]}})";
  const std::string checkpoint = std::string(1, static_cast<char>(header.size())) +
                                 std::string(7, '\0') + header + Raw<float>({3, 4, 10, 1});
  WriteFile(File("m.safetensors"), checkpoint);
  const std::string a = File("m.safetensors:a"), b = File("m.safetensors:b");
  ASSERT_EQ(Ctl({"upload", a, "--name", "kept"}).status, 0);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"matmul", a, b, "-o", File("m.safetensors:y")},
        std::vector<std::string>{"download", "kept", File("m.safetensors:y")},
        std::vector<std::string>{"download", "kept", File("m.safetensors")}}) {
    const Finished refused = Ctl(args);
    EXPECT_EQ(refused.status, 3);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("m.safetensors' exists and holds 2 tensors (a, b)"),
                                   HasSubstr("--force")));
    EXPECT_EQ(ReadFile(File("m.safetensors")), checkpoint);
  }
  // By --force y comes to the others, computed from them.
  EXPECT_EQ(Ctl({"matmul", a, b, "-o", File("m.safetensors:y"), "--force"}).status, 0);
  EXPECT_EQ(Ctl({"download", "kept", File("m.safetensors:z"), "--force"}).status, 0);
  const std::string grown = ReadFile(File("m.safetensors"));
  EXPECT_EQ(grown.substr(grown.size() - 28), Raw<float>({3, 4, 10, 1, 34, 3, 4}));
  EXPECT_EQ(Ctl({"matmul", a, b, "--verify"}).status, 0);
  EXPECT_EQ(Ctl({"matmul", File("m.safetensors:y"), File("m.safetensors:z")}).status, 0);
}

TEST_F(GemmctlFilesTest, BenchHasMovedAndSaysWhere) {
  const Finished moved = Ctl({"bench", "--mode", "queue"});
  EXPECT_EQ(moved.status, 2);
  EXPECT_THAT(moved.err, HasSubstr("gemmd_bench load"));
}

TEST_F(GemmctlFilesTest, AResultThatCannotBeWrittenIsAnError) {
  for (const std::string& words :
       {std::string("info"), std::string("info --json"), std::string("top --interval 10ms"),
        std::string("trace --for 10ms -o -")}) {
    const Finished full = Shell("exec " + CtlLine(words) + " >/dev/full");
    EXPECT_EQ(full.status, 3) << words;
    EXPECT_THAT(full.err, HasSubstr("cannot write to stdout: No space left on device")) << words;
  }
  for (const std::string& words :
       {std::string("completion bash"), std::string("help"), std::string("--version"),
        std::string("matmul --help"), std::string("--help")}) {
    const Finished full = Shell("exec " + FindProgram(GEMMCTL_PATH) + " " + words + " >/dev/full");
    EXPECT_EQ(full.status, 3) << words;
    EXPECT_THAT(full.err, HasSubstr("cannot write to stdout")) << words;
    const Finished closed = Shell("exec " + FindProgram(GEMMCTL_PATH) + " " + words + " >&-");
    EXPECT_EQ(closed.status, 3) << words;
  }
}

TEST_F(GemmctlFilesTest, AFileBeyondItsLimitIsAnErrorAndLeavesNothing) {
  WriteFile(File("a.npy"), Npy("<f4", 64, 64, std::string(64 * 64 * 4, '\1')));
  ASSERT_EQ(Ctl({"upload", File("a.npy"), "--name", "limited"}).status, 0);
  const Finished done =
      Shell("ulimit -f 8; exec " + CtlLine("download limited " + File("back.npy")));
  EXPECT_EQ(done.status, 3);
  EXPECT_THAT(done.err, HasSubstr("File too large"));
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("back"))) << entry.path();
  }
}

TEST_F(GemmctlFilesTest, TopEndsWhenItsReaderHasGone) {
  const auto top = [&](const std::string& interval, const std::string& reader) {
    return Shell("{ " + CtlLine("top --interval " + interval) + "; echo $? >" + File("status") +
                 "; } | " + reader);
  };
  const Finished head = top("20ms", "head -1");
  EXPECT_EQ(head.status, 0);
  EXPECT_THAT(head.out, HasSubstr("gemmd "));
  EXPECT_EQ(head.err, "");
  EXPECT_EQ(ReadFile(File("status")), "141\n");
  // Also while it has nothing to say.
  const Finished gone = top("1h", "true");
  EXPECT_EQ(gone.err, "");
  EXPECT_EQ(ReadFile(File("status")), "141\n");
}

}  // namespace
}  // namespace gemmd::e2e
