// 'gemmctl load': checkpoints become published weights, once.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gemmd/v1/buffer_service.pb.h"
#include "tests/e2e/checkpoint_files.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kRows = 160, kCols = 200;

class GemmctlLoadTest : public testing::Test {
 protected:
  explicit GemmctlLoadTest(const std::string& config = "")
      : daemon_({.config = config}), client_(ConnectTo(daemon_)) {}

  std::string File(const std::string& name) const { return dir_.File(name); }
  std::vector<std::string> Line(std::vector<std::string> args) const {
    args.insert(args.begin(), GEMMCTL_PATH);
    args.insert(args.end(), {"--server", daemon_.target()});
    return args;
  }
  Finished Ctl(const std::vector<std::string>& args) { return RunToEnd(Line(args)); }
  json CtlJson(std::vector<std::string> args) {
    args.push_back("--json");
    const Finished done = Ctl(args);
    EXPECT_EQ(done.status, 0) << done.err;
    return json::parse(done.out, nullptr, false);
  }
  void ExpectRefused(const std::vector<std::string>& args, int status, const std::string& says) {
    const Finished done = Ctl(args);
    EXPECT_EQ(done.status, status) << says << ": " << done.out;
    EXPECT_THAT(done.err, HasSubstr(says));
  }
  size_t PublishedCount() { return Must(client_.ListPublished()).size(); }

  // Three shards of two layers: F32 matrices and biases, E4M3 matrices with their scales.
  int64_t WriteModel() {
    std::vector<std::vector<FileTensor>> shards(3);
    for (int i = 0; i < 6; ++i) {
      const std::string layer = "layer." + std::to_string(i);
      std::vector<FileTensor>& shard = shards[i / 2];
      shard.push_back({layer + ".w", "F32", {kRows, kCols}, RandomFloats(kRows * kCols, i)});
      shard.push_back({layer + ".bias", "F32", {kRows}, RandomFloats(kRows, 10 + i)});
      shard.push_back({layer + ".q", "F8_E4M3", {kRows, kCols}, RandomE4m3(kRows * kCols, 20 + i)});
      shard.push_back({layer + ".q_scale_inv", "F32", {2, 2}, RandomFloats(4, 30 + i)});
    }
    WriteSharded(dir_.path(), shards);
    int64_t bytes = 0;
    for (const auto& shard : shards) {
      for (const FileTensor& tensor : shard) bytes += static_cast<int64_t>(tensor.data.size());
    }
    return bytes;
  }

  TempDir dir_;
  Daemon daemon_;
  client::Client client_;
};

TEST_F(GemmctlLoadTest, ASecondLoadMovesNothing) {
  const int64_t bytes = WriteModel();
  const json first = CtlJson({"load", dir_.path(), "--prefix", "m"});
  EXPECT_EQ(first["weights"], 18);  // scales lie in their matrices' buffers
  EXPECT_EQ(first["loaded"], 18);
  EXPECT_EQ(first["moved_bytes"], bytes);
  const json again = CtlJson({"load", File("model.safetensors.index.json"), "--prefix", "m/"});
  EXPECT_EQ(again["loaded"], 0);
  EXPECT_EQ(again["found"], 18);
  EXPECT_EQ(again["moved_bytes"], 0);
  EXPECT_EQ(again["transfer"]["bytes"], 0);
  EXPECT_EQ(PublishedCount(), 18);
  EXPECT_THAT(Ctl({"load", dir_.path(), "--prefix", "m"}).out, HasSubstr("18 were there"));

  client::Session session = Must(client_.OpenSession());
  const client::Buffer bias = Must(session.Find("m/layer.3.bias"));
  std::string back(kRows * sizeof(float), '\0');
  Must(bias.Download(absl::MakeSpan(back)));
  EXPECT_EQ(back, RandomFloats(kRows, 13));
}

TEST_F(GemmctlLoadTest, PublishedTellsOwnerAgeAndUse) {
  WriteModel();
  CtlJson({"load", dir_.path(), "--prefix", "m@7", "--switch", "--ttl", "1h"});
  client::Session session = Must(client_.OpenSession());
  const client::Buffer held = Must(session.Find("m/layer.0.w"));
  const json one = CtlJson({"published", "m@7/layer.0.w"})["published"][0];
  EXPECT_EQ(one["shape"], json({kRows, kCols}));
  EXPECT_EQ(one["dtype"], "f32");
  EXPECT_FALSE(one["owner"].get<std::string>().empty());
  EXPECT_EQ(one["holders"], 1);
  EXPECT_EQ(one["ttl_seconds"], 3600);
  EXPECT_EQ(one["current_version"], true);
  EXPECT_EQ(one["content_hash"].get<std::string>().size(), 64);
  EXPECT_THAT(one["last_use_time"].get<std::string>(), HasSubstr("Z"));
  EXPECT_THAT(Ctl({"published"}).out,
              AllOf(HasSubstr("owner"), HasSubstr("last use"), HasSubstr("in use")));
}

TEST_F(GemmctlLoadTest, LoadedWeightsAreOperands) {
  WriteModel();
  WriteFile(File("x.safetensors"),
            SafetensorsText({{"x", "F32", {16, kCols}, RandomFloats(16 * kCols, 99)}}));
  CtlJson({"load", dir_.path() + "/0.safetensors", "--prefix", "plain"});
  CtlJson({"load", dir_.path(), "--prefix", "m", "--quantize", "fp8-block"});
  const json plain =
      CtlJson({"matmul", File("x.safetensors"), "@plain/layer.0.w", "--nt", "--verify"})["verify"];
  EXPECT_EQ(plain["ok"], true);
  EXPECT_LT(plain["against_files"]["relative_error"], 1e-5);
  // One that was quantised here, and one that came with its scales.
  for (const char* name : {"@m/layer.0.w", "@m/layer.0.q"}) {
    const json verify = CtlJson({"matmul", File("x.safetensors"), name, "--nt", "--verify",
                                 "--quantize", "fp8-block"})["verify"];
    EXPECT_EQ(verify["ok"], true) << name;
  }
  // The bits are those of quantising in the matmul.
  const Finished published = Ctl({"matmul", File("x.safetensors"), "@m/layer.0.w", "--nt", "-o",
                                  File("a.npy"), "--quantize", "fp8-block"});
  const Finished file = Ctl({"matmul", File("x.safetensors"), File("0.safetensors") + ":layer.0.w",
                             "--nt", "-o", File("b.npy"), "--quantize", "fp8-block"});
  ASSERT_EQ(published.status, 0) << published.err;
  ASSERT_EQ(file.status, 0) << file.err;
  EXPECT_EQ(ReadFile(File("a.npy")), ReadFile(File("b.npy")));

  ExpectRefused({"matmul", File("x.safetensors"), "@m/layer.0.w", "--quantize", "fp8-block"}, 2,
                "give --nt");
  ExpectRefused({"matmul", File("x.safetensors"), "@m/layer.0.w", "--nt"}, 2,
                "--quantize fp8-block");
  ExpectRefused({"matmul", File("x.safetensors"), "@m/nothing", "--nt"}, 5, "m/nothing");
  ExpectRefused({"matmul", File("x.safetensors"), "@m/layer.0.bias", "--nt"}, 5, "no matrix");
}

// Most checkpoints of FP8 have one scale for a matrix, or blocks' in BF16.
TEST_F(GemmctlLoadTest, ScalesMayBeOneForAllAndOfAnyFloats) {
  const std::string values = RandomE4m3(kRows * kCols, 7), bf16_half("\0\x3f", 2);
  const float half = 0.5F;
  const std::string f32_half(reinterpret_cast<const char*>(&half), sizeof(half));
  std::string f32_blocks, bf16_blocks;
  for (int i = 0; i < 4; ++i) {
    f32_blocks += f32_half;
    bf16_blocks += bf16_half;
  }
  const auto write = [&](const std::string& file, const std::string& dtype,
                         std::vector<int64_t> shape, const std::string& scales) {
    WriteFile(File(file), SafetensorsText({{"w", "F8_E4M3", {kRows, kCols}, values},
                                           {"w_scale", dtype, std::move(shape), scales}}));
  };
  write("blocks.safetensors", "F32", {2, 2}, f32_blocks);
  EXPECT_EQ(CtlJson({"load", File("blocks.safetensors"), "--prefix", "m"})["loaded"], 1);
  write("bf16.safetensors", "BF16", {2, 2}, bf16_blocks);
  write("one.safetensors", "F32", {}, f32_half);
  write("one-bf16.safetensors", "BF16", {1}, bf16_half);
  for (const char* same : {"bf16.safetensors", "one.safetensors", "one-bf16.safetensors"}) {
    EXPECT_EQ(CtlJson({"load", File(same), "--prefix", "m"})["found"], 1) << same;
  }
  // What was moved from one scale is what was moved from blocks.
  CtlJson({"load", File("one.safetensors"), "--prefix", "one"});
  WriteFile(File("x.safetensors"),
            SafetensorsText({{"x", "F32", {16, kCols}, RandomFloats(16 * kCols, 99)}}));
  for (const char* name : {"m", "one"}) {
    const Finished done =
        Ctl({"matmul", File("x.safetensors"), std::string("@") + name + "/w", "--nt", "--quantize",
             "fp8-block", "-o", File(std::string(name) + ".npy")});
    ASSERT_EQ(done.status, 0) << done.err;
  }
  EXPECT_EQ(ReadFile(File("m.npy")), ReadFile(File("one.npy")));
  // Those of another shape stay beside their values.
  write("odd.safetensors", "F32", {1, kRows}, RandomFloats(kRows, 3));
  EXPECT_EQ(CtlJson({"load", File("odd.safetensors"), "--prefix", "odd"})["weights"], 2);
}

TEST_F(GemmctlLoadTest, ScalesMayBeOneARow) {
  const std::string values = RandomE4m3(kRows * kCols, 7), scales = RandomFloats(kRows, 3);
  const FileTensor q = {"q", "F8_E4M3", {kRows, kCols}, values};
  const FileTensor w = {"w", "F32", {kRows, kCols}, RandomFloats(kRows * kCols, 1)};
  WriteFile(File("rows.safetensors"),
            SafetensorsText({q, {"q_scale", "F32", {kRows, 1}, scales}, w}));
  WriteFile(File("flat.safetensors"), SafetensorsText({q, {"q_scale", "F32", {kRows}, scales}, w}));
  const auto load = [&](const char* file, const char* quantize) {
    return CtlJson({"load", File(file), "--prefix", "m", "--quantize", quantize});
  };
  EXPECT_EQ(load("rows.safetensors", "fp8-row")["loaded"], 2);
  EXPECT_EQ(load("flat.safetensors", "fp8-row")["found"], 2);
  client::Session session = Must(client_.OpenSession());
  const client::Buffer found = Must(session.Find("m/q"));
  EXPECT_EQ(found.label(), "gemmd.Linear.row/1");
  EXPECT_THAT(Ctl({"published", "m/q"}).out, HasSubstr("e4m3 by row"));
  // 32000 bytes of values are 125 times 256: the scales begin right behind them.
  std::string back(kRows * kCols + kRows * sizeof(float), '\0');
  Must(found.Download(absl::MakeSpan(back)));
  EXPECT_EQ(back, values + scales);

  WriteFile(File("x.safetensors"),
            SafetensorsText({{"x", "F32", {16, kCols}, RandomFloats(16 * kCols, 99)}}));
  const auto line = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"matmul", File("x.safetensors")});
    more.insert(more.end(), {"--nt", "--out-dtype", "f32"});
    return more;
  };
  for (const char* name : {"@m/q", "@m/w"}) {
    const json report = CtlJson(line({name, "--verify", "--quantize", "fp8-row"}));
    EXPECT_EQ(report["verify"]["ok"], true) << name;
    EXPECT_LT(report["verify"]["relative_error"], 1e-5) << name;
  }
  // The bits are those of quantising in the matmul.
  CtlJson(line({"@m/w", "-o", File("a.npy"), "--quantize", "fp8-row"}));
  CtlJson(line({File("rows.safetensors") + ":w", "-o", File("b.npy"), "--quantize", "fp8-row"}));
  EXPECT_EQ(ReadFile(File("a.npy")), ReadFile(File("b.npy")));

  ExpectRefused(line({"@m/q"}), 2, "a scale a row; give --quantize fp8-row");
  ExpectRefused({"matmul", "@m/q", File("x.safetensors"), "--nt", "--quantize", "fp8-row"}, 2,
                "give it as B");
  ExpectRefused({"matmul", File("x.safetensors"), "@m/q", "--quantize", "fp8-row"}, 2, "give --nt");
  ExpectRefused({"load", File("rows.safetensors"), "--prefix", "m", "--quantize", "fp8-block"}, 5,
                "other content");
}

TEST_F(GemmctlLoadTest, FourWorkersMakeOneCopy) {
  const int64_t bytes = WriteModel();
  std::vector<Process> workers;
  for (int i = 0; i < 4; ++i) {
    workers.push_back(
        Process::Start(Line({"load", dir_.path(), "--prefix", "m", "--json"}), dir_.path()));
  }
  int64_t loaded = 0;
  for (Process& worker : workers) {
    ASSERT_EQ(worker.Wait(absl::Seconds(60)), 0) << worker.err();
    const json report = json::parse(worker.out());
    EXPECT_EQ(report["loaded"].get<int>() + report["found"].get<int>(), 18);
    loaded += report["loaded"].get<int>();
  }
  EXPECT_EQ(loaded, 18);  // each published once
  EXPECT_EQ(PublishedCount(), 18);
  // Their own, less the padding to 256 bytes of scales and values.
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_).buffer_bytes < bytes + 18 * 512; }));
}

TEST_F(GemmctlLoadTest, OtherContentIsRefusedUntilItIsAnotherVersion) {
  WriteFile(File("a.safetensors"), SafetensorsText({{"w", "F32", {4, 4}, RandomFloats(16, 1)}}));
  WriteFile(File("b.safetensors"), SafetensorsText({{"w", "F32", {4, 4}, RandomFloats(16, 2)}}));
  CtlJson({"load", File("a.safetensors"), "--prefix", "m@1", "--switch"});
  ExpectRefused({"load", File("b.safetensors"), "--prefix", "m@1"}, 5, "other content");
  ExpectRefused({"load", File("a.safetensors"), "--prefix", "m@1", "--quantize", "fp8-block"}, 5,
                "other content");
  ExpectRefused({"load", File("b.safetensors"), "--prefix", "m"}, 5, "m@1/w now");
  const json switched = CtlJson({"load", File("b.safetensors"), "--prefix", "m@2", "--switch"});
  EXPECT_EQ(switched["switched"]["previous_version"], 1);
  EXPECT_EQ(CtlJson({"switch", "m@1"})["previous_version"], 2);
  EXPECT_EQ(CtlJson({"unpublish", "m@2/*", "--unless-held"})["unpublished"].size(), 1);
  ExpectRefused({"switch", "m@2"}, 5, "m@2");
  ExpectRefused({"switch", "m@0"}, 2, "m@0");
  ExpectRefused({"switch", "m@x"}, 2, "m@x");
  ExpectRefused({"load", File("b.safetensors"), "--prefix", "m@0"}, 5, "version '0'");
  ExpectRefused({"load", File("b.safetensors"), "--prefix", "m@x"}, 5, "version 'x'");
  ExpectRefused({"load", File("b.safetensors"), "--prefix", "m", "--switch"}, 2, "--switch");
  ExpectRefused({"load", File("b.safetensors"), "--prefix", "n", "--ttl", "0"}, 2, "ttl");
  ExpectRefused({"load", File("b.safetensors"), "--prefix", "n", "--ttl", "-5s"}, 2, "ttl");
  ExpectRefused({"load", File("b.safetensors"), "--prefix", "n", "--ttl", "200ms"}, 5, "ttl=");
  EXPECT_EQ(PublishedCount(), 1);
}

TEST_F(GemmctlLoadTest, BadCheckpointsAreRefusedBeforeAnythingMoves) {
  WriteModel();
  const std::string shard = ReadFile(File("1.safetensors"));
  WriteFile(File("1.safetensors"), shard.substr(0, shard.size() - 5));
  ExpectRefused({"load", dir_.path()}, 3, "1.safetensors: ");
  std::filesystem::remove(File("1.safetensors"));
  ExpectRefused({"load", dir_.path()}, 3, "index.json names 1.safetensors");
  WriteFile(File("1.safetensors"), ReadFile(File("0.safetensors")));  // its tensors twice
  ExpectRefused({"load", dir_.path()}, 3, "by the index");
  WriteFile(File("model.safetensors.index.json"),
            "{\"weight_map\": {\"a\": \"../x.safetensors\"}}");
  ExpectRefused({"load", dir_.path()}, 3, "no .safetensors file beside the index");
  WriteFile(File("model.safetensors.index.json"),
            "{\"weight_map\": {\"a\": \"0.safetensors\", \"a\": \"1.safetensors\"}}");
  ExpectRefused({"load", dir_.path()}, 3, "is there twice");
  for (const char* text : {"", "[]", "{}", "{\"weight_map\": []}", "{\"weight_map\": {\"a\": 1}}",
                           "{\"weight_map\": {\"a\": {}}}"}) {
    WriteFile(File("model.safetensors.index.json"), text);
    ExpectRefused({"load", dir_.path()}, 3, "the index is wrong");
  }
  std::filesystem::remove(File("model.safetensors.index.json"));
  ExpectRefused({"load", dir_.path()}, 3, "no single index");
  ExpectRefused({"load", File("none")}, 3, "none");
  ExpectRefused({"load", File("none.safetensors")}, 3, "none.safetensors");
  TempDir empty;
  ExpectRefused({"load", empty.path()}, 3, "holds no .safetensors file");

  WriteFile(File("odd.safetensors"), SafetensorsText({{"i", "I64", {2}, std::string(16, '\1')},
                                                      {"w", "F32", {2}, RandomFloats(2, 1)}}));
  ExpectRefused({"load", File("odd.safetensors")}, 3, "I64, which is not served");
  ExpectRefused({"load", File("odd.safetensors"), "--skip", "*"}, 3, "none of the 2 tensors");
  WriteFile(File("same.safetensors"), SafetensorsText({{"a b", "F32", {2}, RandomFloats(2, 1)},
                                                       {"a-b", "F32", {2}, RandomFloats(2, 1)}}));
  ExpectRefused({"load", File("same.safetensors")}, 3, "would both be published as a-b");
  WriteFile(File("long.safetensors"),
            SafetensorsText({{std::string(130, 'n'), "F32", {2}, RandomFloats(2, 1)}}));
  ExpectRefused({"load", File("long.safetensors")}, 3, "limit 128");
  WriteFile(File("unnamed.safetensors"), SafetensorsText({{"", "F32", {2}, RandomFloats(2, 1)}}));
  ExpectRefused({"load", File("unnamed.safetensors")}, 3, "has no name to be published by");
  WriteFile(File("nothing.safetensors"), std::string("\2\0\0\0\0\0\0\0{}", 10));
  ExpectRefused({"load", File("nothing.safetensors")}, 3, "holds no tensor");
  WriteFile(File("deep.safetensors"),
            SafetensorsText({{"w", "F32", {1, 1, 1, 2}, RandomFloats(2, 1)}}));
  ExpectRefused({"load", File("deep.safetensors")}, 3, "[1, 1, 1, 2]");
  EXPECT_EQ(PublishedCount(), 0);
  EXPECT_EQ(CtlJson({"load", File("odd.safetensors"), "--skip", "i"})["loaded"], 1);
}

TEST_F(GemmctlLoadTest, Float64IsNarrowedWithAWarning) {
  const double values[] = {0.5, -3, 1e-3};
  WriteFile(
      File("d.safetensors"),
      SafetensorsText(
          {{"w", "F64", {3}, std::string(reinterpret_cast<const char*>(values), sizeof(values))}}));
  const Finished done = Ctl({"load", File("d.safetensors")});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("narrowed to float32"));
  client::Session session = Must(client_.OpenSession());
  const client::Buffer found = Must(session.Find("w"));
  std::string back(12, '\0');
  Must(found.Download(absl::MakeSpan(back)));
  EXPECT_EQ(back, Floats({0.5f, -3.0f, 1e-3f}));
}

class SmallQuotaTest : public GemmctlLoadTest {
 protected:
  SmallQuotaTest() : GemmctlLoadTest("limits { max_buffer_bytes: 400000 }") {}
};

TEST_F(SmallQuotaTest, WhatIsWholeStaysAndTheRestGoesOn) {
  const int64_t bytes = WriteModel();
  const Finished over = Ctl({"load", dir_.path(), "--prefix", "m", "--jobs", "1"});
  EXPECT_EQ(over.status, 5);
  EXPECT_THAT(over.err, AllOf(HasSubstr("BUFFER_BYTES_LIMIT"), HasSubstr("of 18 weights"),
                              HasSubstr("goes on from there")));
  const size_t there = PublishedCount();
  ASSERT_GT(there, 0);
  ASSERT_LT(there, 18);
  int64_t held = 0;
  for (const auto& buffer : Must(client_.ListPublished())) held += buffer.size_bytes();
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_).buffer_bytes == held; }));
  daemon_.Reload("limits { max_buffer_bytes: 100000000 }");
  json rest;
  ASSERT_TRUE(WaitUntil([&] {
    rest = json::parse(Ctl({"load", dir_.path(), "--prefix", "m", "--json"}).out, nullptr, false);
    return rest.contains("loaded");
  }));
  EXPECT_LT(rest["moved_bytes"].get<int64_t>(), bytes);
  EXPECT_EQ(PublishedCount(), 18);
}

}  // namespace
}  // namespace gemmd::e2e
