#include "kernels/bench/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/kernels/bench/runs.h"

namespace gemmd::kernels::bench {
namespace {

using ::testing::HasSubstr;

TEST(ResultTest, JsonKeepsEverything) {
  RunResult run = SmallRun();
  run.shapes[0].variants_timed = 90;
  run.shapes[0].best = {{"x", 9.5}, {"y", 10}};
  run.shapes[0].model_kernel = "y";
  run.shapes[0].model_us = 10;
  run.shapes[0].pool = {{"y", 11}, {"x", 9.75}};
  run.shapes[0].bitwise_runs = 20;
  run.shapes[0].cublaslt_block_refusal = "m=1";
  run.shapes[0].batch = 24;
  run.shapes[0].layout = "tn";
  const absl::StatusOr<RunResult> back = FromJson(ToJson(run));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), ToJson(run));
  EXPECT_EQ(back->gpu, "NVIDIA H200");
  EXPECT_EQ(back->shapes[0].best[1].kernel, "y");
  ASSERT_EQ(back->shapes[0].pool.size(), 2);
  EXPECT_EQ(back->shapes[0].pool[1].us, 9.75);
  EXPECT_EQ(back->shapes[0].batch, 24);
  EXPECT_EQ(back->shapes[0].layout, "tn");
  EXPECT_EQ(back->shapes[1].layout, "nt");
  EXPECT_EQ(back->shapes[1].cublaslt_block_us, 220);
  EXPECT_EQ(back->shapes[2].outcome, Outcome::kRefused);
  EXPECT_EQ(back->shapes[3].outcome, Outcome::kSkipped);
}

TEST(ResultTest, JsonKeepsTheOperandsType) {
  RunResult run = SmallRun();
  run.dtype = DType::kI8;
  for (ShapeResult& shape : run.shapes) shape.dtype = run.dtype;
  const absl::StatusOr<RunResult> back = FromJson(ToJson(run));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->dtype, DType::kI8);
  EXPECT_EQ(ToJson(*back), ToJson(run));
}

TEST(ShapeTest, BytesAreOfTheOperandsType) {
  constexpr Shape shape = {128, 256, 512};
  constexpr double kResult = 128 * 256 * 2, kElements = (128 + 256) * 512;
  EXPECT_EQ(shape.bytes(DType::kBF16), 2 * kElements + kResult);
  EXPECT_EQ(shape.bytes(DType::kI8), kElements + kResult + 4 * (128 + 256));
  EXPECT_EQ(shape.bytes(), kElements + kResult + 4 * (128 * 4 + 2 * 4));
}

TEST(ResultTest, JsonKeepsQuantizeResults) {
  RunResult run = SmallRun();
  run.quantize = {{4096, 7168, "1x128", true, 0.026, 25, 24.5, 26, 20}};
  const absl::StatusOr<RunResult> back = FromJson(ToJson(run));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), ToJson(run));
  EXPECT_EQ(back->quantize[0].block, "1x128");
  EXPECT_DOUBLE_EQ(back->quantize[0].bytes(), 4096.0 * 7168 * 3 + 4096 * 56 * 4);
  run.quantize[0].block = "128x128";
  EXPECT_DOUBLE_EQ(run.quantize[0].bytes(), 4096.0 * 7168 * 3 + 32 * 56 * 4);
}

TEST(ResultTest, JsonHasTheFieldsThatCommittedResultsNeed) {
  const auto json = nlohmann::json::parse(ToJson(SmallRun()));
  for (const char* key : {"gpu", "driver", "date", "commit", "method", "copy_gb_s", "summary"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json.at("summary").at("rows").at(0).at("m_least"), 17);
  const auto& shape = json.at("shapes").at(0);
  for (const char* key :
       {"m", "n", "k", "kernel", "us", "floor_us", "cublaslt_block_us", "cublaslt_tensorwise_us",
        "cublaslt_bf16_us", "calc_diff", "rel_error", "checked_rows"}) {
    EXPECT_TRUE(shape.contains(key)) << key;
  }
}

TEST(ResultTest, WhatWasNotMeasuredIsNull) {
  const auto json = nlohmann::json::parse(ToJson(SmallRun()));
  EXPECT_TRUE(json.at("shapes").at(0).at("cublaslt_block_us").is_null());
  EXPECT_TRUE(json.at("shapes").at(2).at("us").is_null());
}

TEST(ResultTest, ANanErrorSurvivesAsNull) {
  RunResult run = SmallRun();
  run.shapes[0].outcome = Outcome::kWrong;
  run.shapes[0].calc_diff = std::nan("");
  EXPECT_TRUE(FromJson(ToJson(run)).ok());
}

TEST(ResultTest, RefusesOtherTexts) {
  for (const char* text : {"", "[]", "{", "{\"gpu\": 3, \"shapes\": []}", "{\"gpu\": \"x\"}",
                           "{\"gpu\": \"x\", \"shapes\": [{\"m\": 1}]}"}) {
    EXPECT_EQ(FromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ResultTest, WritesAndReadsFiles) {
  const std::string path = testing::TempDir() + "/result_test.json";
  ASSERT_TRUE(WriteText(path, ToJson(SmallRun())).ok());
  EXPECT_EQ(ReadRun(path)->shapes.size(), 4);
  std::remove(path.c_str());
  EXPECT_EQ(ReadRun(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(WriteText("/no/such/folder/x.json", "x").ok());
}

TEST(ResultTest, RatesAreOfTheBytesThatMustMove) {
  const ShapeResult r = Timed({64, 4096, 7168}, 10);
  EXPECT_NEAR(r.tflops(), 2.0 * 64 * 4096 * 7168 / 10e-6 / 1e12, 1e-9);
  const double bytes = 64 * 7168 + 4096 * 7168 + 4 * 64 * 56 + 4 * 32 * 56 + 2 * 64 * 4096;
  EXPECT_NEAR(r.gb_per_s(), bytes / 10e-6 / 1e9, 1e-6);
}

}  // namespace
}  // namespace gemmd::kernels::bench
