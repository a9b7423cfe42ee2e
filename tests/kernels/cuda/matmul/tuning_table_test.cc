#include "kernels/cuda/tuning/tuning_table.h"

#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/text.h"
#include "tests/kernels/cuda/fake_pool.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kGpu = "NVIDIA H200";

TuningTable Sample() {
  TuningTable table;
  table.Set({64, 4096, 7168, DType::kBF16}, {{"slow", 12.5e-6}, {"fast", 11.25e-6}});
  table.Set({128, 4096, 7168, DType::kBF16}, {{"fast", 14e-6}});
  table.Set({64, 4096, 7168, DType::kF32}, {{"other", 13e-6}});
  return table;
}
std::string SampleText() { return Sample().Serialize(kGpu, "580.1", "2026-11-20"); }

// A table with the given text in place of its entries.
std::string WithEntries(std::string_view entries) {
  return absl::StrCat(
      R"({"format": "gemmd-tuning-2", "gpu": "NVIDIA H200", "kernels": {}, "entries": )",
      Text(entries), "}");
}
absl::Status ParseEntries(std::string_view entries) {
  return TuningTable::Parse(WithEntries(entries), kGpu).status();
}

TEST(TuningTableTest, ReadsWhatItWrote) {
  const TuningTable table = TuningTable::Parse(SampleText(), kGpu).value();
  EXPECT_EQ(table.size(), 3);
  const TuningTable::Hit hit = table.Find({64, 4096, 7168, DType::kBF16});
  ASSERT_EQ(hit.kernels.size(), 2);
  EXPECT_EQ(hit.kernels[0].kernel, "fast");
  EXPECT_NEAR(hit.kernels[0].seconds, 11.25e-6, 1e-15);
  EXPECT_EQ(hit.kernels[1].kernel, "slow");
  EXPECT_EQ(table.Serialize(kGpu, "580.1", "2026-11-20"), SampleText());
}

TEST(TuningTableTest, KeepsTypesOfOperandsApart) {
  TuningTable table = Sample();
  table.Set({64, 4096, 7168, DType::kBF16, DType::kBF16}, {{"direct", 20e-6}});
  table.Set({128, 4096, 7168, DType::kBF16, DType::kI8}, {{"integers", 12e-6}});
  const std::string text = table.Serialize(kGpu, "580.1", "2026-11-20");
  const TuningTable read = TuningTable::Parse(text, kGpu).value();
  EXPECT_EQ(read.Serialize(kGpu, "580.1", "2026-11-20"), text);
  const auto found = [&](DType in, int64_t m) {
    const TuningTable::Hit hit = read.Find({m, 4096, 7168, DType::kBF16, in});
    return hit.kernels.empty() ? std::string() : hit.kernels[0].kernel;
  };
  EXPECT_EQ(found(DType::kE4M3, 64), "fast");
  EXPECT_EQ(found(DType::kBF16, 64), "direct");
  EXPECT_EQ(found(DType::kBF16, 128), "");
  EXPECT_EQ(found(DType::kI8, 64), "integers");
  EXPECT_EQ(found(DType::kF16, 64), "");
}

TEST(TuningTableTest, RefusesATypeThatNobodyMultiplies) {
  EXPECT_THAT(
      ParseEntries(
          R"([{"m": 1, "n": 2, "k": 3, "out": "bf16", "in": "f32", "kernels": [{"name": "x", "us": 1}]}])")
          .message(),
      HasSubstr("tuning table.entries[0].in is \"f32\"; use one of e4m3, bf16, f16, i8"));
}

TEST(TuningTableTest, FindsTheNextLargerMUpToTwice) {
  const TuningTable table = Sample();
  const auto m_for = [&](int64_t m) { return table.Find({m, 4096, 7168, DType::kBF16}).key.m; };
  EXPECT_EQ(m_for(31), 0);
  EXPECT_EQ(m_for(32), 64);
  EXPECT_EQ(m_for(64), 64);
  EXPECT_EQ(m_for(65), 128);
  EXPECT_EQ(m_for(128), 128);
  EXPECT_EQ(m_for(129), 0);
  EXPECT_EQ(m_for(0), 0);
  EXPECT_EQ(m_for(std::numeric_limits<int64_t>::min()), 0);
  EXPECT_EQ(m_for(std::numeric_limits<int64_t>::max()), 0);
  EXPECT_TRUE(table.Find({64, 4096, 7168, DType::kF16}).kernels.empty());
  EXPECT_TRUE(table.Find({64, 4096, 7169, DType::kBF16}).kernels.empty());
  EXPECT_TRUE(table.Find({64, 4095, 7168, DType::kBF16}).kernels.empty());
  EXPECT_TRUE(TuningTable().Find({64, 4096, 7168, DType::kBF16}).kernels.empty());
}

TEST(TuningTableTest, SetReplacesAndRemoves) {
  TuningTable table = Sample();
  table.Set({64, 4096, 7168, DType::kBF16}, {{"new", 1e-6}});
  EXPECT_EQ(table.Find({64, 4096, 7168, DType::kBF16}).kernels[0].kernel, "new");
  table.Set({64, 4096, 7168, DType::kBF16}, {});
  EXPECT_EQ(table.size(), 2);
}

TEST(TuningTableTest, MeanOrdersByAllTables) {
  const TuningKey both = {64, 4096, 7168, DType::kBF16};
  const TuningKey one = {128, 4096, 7168, DType::kBF16};
  TuningTable first, second;
  first.Set(both, {{"steady", 11e-6}, {"lucky", 10e-6}, {"missing", 9e-6}});
  second.Set(both, {{"steady", 12e-6}, {"lucky", 15e-6}});
  second.Set(one, {{"steady", 14e-6}});
  const TuningTable mean = TuningTable::Mean({first, second});
  ASSERT_EQ(mean.size(), 2);
  const auto kernels = mean.Find(both).kernels;
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].kernel, "steady");
  EXPECT_DOUBLE_EQ(kernels[0].seconds, 11.5e-6);
  EXPECT_EQ(kernels[1].kernel, "lucky");
  ASSERT_EQ(mean.Find(one).kernels.size(), 1u);
  EXPECT_EQ(TuningTable::Mean({}).size(), 0);
}

TEST(TuningTableTest, RefusesAnotherGpu) {
  const absl::Status status = TuningTable::Parse(SampleText(), "NVIDIA H100 PCIe").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("NVIDIA H200"), HasSubstr("NVIDIA H100 PCIe"),
                                      HasSubstr("gemm_bench --tune")));
}

constexpr TuningKey kSmall = {16, 4096, 7168, DType::kBF16};
constexpr TuningKey kLarge = {4096, 4096, 7168, DType::kBF16};

// Measured on the kernels of fake_pool.cc.
std::string Measured() {
  TuningTable table;
  table.Set(kSmall, {{"skinny_8x64_k4", 10e-6}, {"skinny_64x64_k2", 10.1e-6}, {"gone", 12e-6}});
  table.Set(kLarge, {{"tiled_128x128", 100e-6}, {"tiled_128x128_c2", 101e-6}});
  return table.Serialize(kGpu, "580.1", "2026-11-20");
}
std::string WithOtherCode(std::string_view config) {
  const std::string code(CodeOf(Variant(config)));
  return absl::StrReplaceAll(Measured(), {{code, "0123456789abcdef"}});
}
std::vector<std::string> KernelsOf(const TuningTable& table, const TuningKey& key) {
  std::vector<std::string> names;
  for (const TunedKernel& tuned : table.Find(key).kernels) names.push_back(tuned.kernel);
  return names;
}

TEST(TuningTableTest, NamesTheCodeOfEachConfigOnce) {
  EXPECT_THAT(Measured(), HasSubstr("\"compiler\": \"13.0.88\",\n\"kernels\": {\n"
                                    "\"skinny_64x64\": \"5c1dd10000000064\",\n"
                                    "\"skinny_8x64\": \"5c1dd10000000008\",\n"
                                    "\"tiled_128x128\": \"711ed00000000128\",\n"
                                    "\"tiled_128x128_c2\": \"711ed00000000c20\"\n},"));
  EXPECT_EQ(TuningTable::Parse(Measured(), kGpu)->stale(), "");
}

TEST(TuningTableTest, AChangedKernelLosesItsOwnTimesOnly) {
  const TuningTable table = TuningTable::Parse(WithOtherCode(kSkinny8), kGpu).value();
  EXPECT_EQ(KernelsOf(table, kSmall), (std::vector<std::string>{"skinny_64x64_k2", "gone"}));
  EXPECT_EQ(KernelsOf(table, kLarge).size(), 2);
  EXPECT_THAT(table.stale(), AllOf(HasSubstr("other machine code of skinny_8x64 than"),
                                   HasSubstr("1 of its 5 times and 0 of its shapes"),
                                   HasSubstr("gemm_bench --tune")));
}

TEST(TuningTableTest, AShapeGoesWhenOnlySlowerKernelsAreLeft) {
  std::string text = WithOtherCode(kSkinny8);
  text = absl::StrReplaceAll(text, {{"\"us\": 10.1", "\"us\": 10.5"}});
  const TuningTable table = TuningTable::Parse(text, kGpu).value();
  EXPECT_EQ(KernelsOf(table, kSmall).size(), 0);
  EXPECT_EQ(table.size(), 1);
  EXPECT_THAT(table.stale(), HasSubstr("3 of its 5 times and 1 of its shapes"));
}

TEST(TuningTableTest, OneFamilysChangeSparesTheOther) {
  std::string text = WithOtherCode(kTiled);
  text = absl::StrReplaceAll(text, {{"711ed00000000c20", "0123456789abcdef"}});
  const TuningTable table = TuningTable::Parse(text, kGpu).value();
  EXPECT_EQ(KernelsOf(table, kSmall).size(), 3);
  EXPECT_EQ(KernelsOf(table, kLarge).size(), 0);
  EXPECT_THAT(table.stale(),
              AllOf(HasSubstr("tiled_128x128, tiled_128x128_c2 than"), Not(HasSubstr("skinny"))));
}

TEST(TuningTableTest, IsRefusedWhenEveryKernelChanged) {
  std::string text;
  for (const std::string_view config : {kTiled, kTiledPair, kSkinny8, kSkinny64}) {
    const std::string code(CodeOf(Variant(config)));
    text = absl::StrReplaceAll(text.empty() ? Measured() : text, {{code, "fedcba9876543210"}});
  }
  const absl::Status status = TuningTable::Parse(text, kGpu).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("nvcc 13.0.88"), HasSubstr("5 of its 5 times and 2 of its shapes"),
                    HasSubstr("gemm_bench --tune")));
}

TEST(TuningTableTest, AKernelWithoutACodeIsAChangedOne) {
  const std::string text =
      absl::StrReplaceAll(Measured(), {{"\"tiled_128x128\": \"711ed00000000128\",\n", ""}});
  EXPECT_EQ(KernelsOf(TuningTable::Parse(text, kGpu).value(), kLarge),
            std::vector<std::string>{"tiled_128x128_c2"});
}

TEST(TuningTableTest, CodesThatAreNoneAreRefused) {
  for (const char* kernels : {"", "\"kernels\": \"db25546a2b5890d8\",", "\"kernels\": [],",
                              "\"kernels\": {\"tiled_128x128\": 7},", "\"kernels\": null,"}) {
    const std::string text = absl::StrCat(R"({"format": "gemmd-tuning-2", "gpu": "NVIDIA H200", )",
                                          kernels, R"("entries": []})");
    const absl::Status status = TuningTable::Parse(text, kGpu).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << kernels;
    EXPECT_THAT(status.message(), HasSubstr("tuning table.kernels")) << kernels;
  }
}

TEST(TuningTableTest, EveryTruncationIsRefused) {
  const std::string text = SampleText();
  const size_t whole = text.rfind('}');
  for (size_t length = 0; length < whole + 1; ++length) {
    const absl::Status status = TuningTable::Parse(text.substr(0, length), kGpu).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << length;
  }
}

TEST(TuningTableTest, EveryDamagedByteIsReadOrRefused) {
  const std::string text = SampleText();
  for (size_t i = 0; i < text.size(); ++i) {
    for (char byte : {'\0', '"', '{', ']', '9', '-', '\xff', 'e'}) {
      std::string damaged = text;
      damaged[i] = byte;
      const absl::StatusOr<TuningTable> table = TuningTable::Parse(damaged, kGpu);
      if (table.ok()) {
        EXPECT_LE(table->size(), 3);
      }
    }
  }
}

TEST(TuningTableTest, NamesThePlaceOfAnError) {
  EXPECT_EQ(ParseEntries("[]"), absl::OkStatus());
  const std::string kernels = R"("kernels": [{"name": "x", "us": 1}])";
  const std::string shape = R"("m": 1, "n": 2, "k": 3, "out": "bf16")";
  EXPECT_EQ(ParseEntries(absl::StrCat("[{", shape, ", ", kernels, "}]")), absl::OkStatus());
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "entries is not a list"},
      {"null", "entries is not a list"},
      {"[7]", "entries[0].m is not a whole number"},
      {"[{}]", "entries[0].m is not a whole number"},
      {R"([{"m": 0}])", "entries[0].m"},
      {R"([{"m": -1}])", "entries[0].m"},
      {R"([{"m": 1.5}])", "entries[0].m"},
      {R"([{"m": "1"}])", "entries[0].m"},
      {R"([{"m": 1, "n": 2147483648}])", "entries[0].n"},
      {R"([{"m": 1, "n": 18446744073709551615}])", "entries[0].n"},
      {R"([{"m": 1, "n": 1e400}])", "not JSON"},
      {R"([{"m": 1, "n": 2, "k": 3}])", "entries[0].out is not a string"},
      {R"([{"m": 1, "n": 2, "k": 3, "out": "e4m3"}])", "entries[0].out is \"e4m3\""},
      {absl::StrCat("[{", shape, "}]"), "entries[0].kernels is not a list"},
      {absl::StrCat("[{", shape, R"(, "kernels": []}])"), "entries[0].kernels is not a list"},
      {absl::StrCat("[{", shape, R"(, "kernels": [1]}])"), "entries[0].kernels[0].name"},
      {absl::StrCat("[{", shape, R"(, "kernels": [{"name": ""}]}])"), "has 0 characters"},
      {absl::StrCat("[{", shape, R"(, "kernels": [{"name": "x"}]}])"), "kernels[0].us"},
      {absl::StrCat("[{", shape, R"(, "kernels": [{"name": "x", "us": 0}]}])"), "kernels[0].us"},
      {absl::StrCat("[{", shape, R"(, "kernels": [{"name": "x", "us": 1e10}]}])"), "kernels[0].us"},
      {absl::StrCat("[{", shape, R"(, "kernels": [{"name": "x", "us": "1"}]}])"), "kernels[0].us"},
      {absl::StrCat("[{", shape, ", ", kernels, "}, {", shape, ", ", kernels, "}]"),
       "entries[1] repeats"},
  };
  for (const auto& [entries, message] : cases) {
    const absl::Status status = ParseEntries(entries);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << entries;
    EXPECT_THAT(status.message(), HasSubstr(message)) << entries;
  }
}

TEST(TuningTableTest, RefusesOtherFiles) {
  for (const char* text :
       {"", " ", "[]", "7", "\"gemmd-tuning-1\"", "{}", R"({"format": 1})",
        R"({"format": "gemmd-tuning-1"})", "\xff\xfe", "{\"format\": \"\xff\"}"}) {
    EXPECT_EQ(TuningTable::Parse(text, kGpu).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(TuningTableTest, DeepAndLongValuesCostLittle) {
  const std::string deep(1 << 20, '[');
  EXPECT_FALSE(ParseEntries(deep).ok());
  EXPECT_FALSE(ParseEntries(absl::StrCat(deep, std::string(1 << 20, ']'))).ok());
  const std::string name(1 << 20, 'n');
  const absl::Status status = ParseEntries(
      absl::StrCat(R"([{"m": 1, "n": 2, "k": 3, "out": ")", name, R"(", "kernels": []}])"));
  EXPECT_LT(status.message().size(), 300);
}

TEST(TuningTableTest, KeepsKernelsOfOtherBuilds) {
  const std::string entries =
      R"([{"m": 1, "n": 2, "k": 3, "out": "f16", "kernels": [{"name": "gone\n", "us": 1}]}])";
  const TuningTable table = TuningTable::Parse(WithEntries(entries), kGpu).value();
  EXPECT_EQ(table.Find({1, 2, 3, DType::kF16}).kernels[0].kernel, "gone\n");
}

TEST(TuningTableTest, LoadTellsTheFile) {
  const std::string path = testing::TempDir() + "/tuning_table_test.json";
  std::ofstream(path) << SampleText();
  EXPECT_EQ(TuningTable::Load(path, kGpu)->size(), 3);
  const absl::Status other = TuningTable::Load(path, "another").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.message(), HasSubstr(path));
  std::filesystem::remove(path);
  const absl::Status missing = TuningTable::Load(path, kGpu).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(path));
  EXPECT_FALSE(TuningTable::Load(testing::TempDir(), kGpu).ok());
}

}  // namespace
}  // namespace gemmd::kernels::cuda
