#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(DevicesTest, FieldsArriveAsWritten) {
  const Config config = ConfigOf(
      "devices { name: \"cpu:0\" memory_bytes: 1024 threads: 3 disabled_kernels: \"blas\" }"
      "devices { name: \"cpu:12\" }");
  ASSERT_EQ(config.devices.size(), 2);
  EXPECT_EQ(config.devices[0], (DeviceConfig{"cpu:0", 1024, 3, {"blas"}}));
  EXPECT_EQ(config.devices[1], (DeviceConfig{"cpu:12", 0, 0, {}}));
}

TEST(DevicesTest, ATuningTableIsForAGpu) {
  const auto config = ParseConfig(
      WithListener("devices { name: \"cuda:0\" tuning_table: \"h200.json\" }"), {}, {"cuda:0"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices[0].tuning_table, "h200.json");
  ExpectErrors({{"devices { name: \"cpu:0\" tuning_table: \"h200.json\" }",
                 "devices[0].tuning_table",
                 {"\"cpu:0\"", "takes no tuning table"}}});
}

TEST(DevicesTest, TheSelfTestIsAGpusAndCanBeLeftOut) {
  const auto config = ParseConfig(
      WithListener(
          "devices { name: \"cuda:0\" } devices { name: \"cuda:1\" skip_self_test: true }"),
      {}, {"cuda:0", "cuda:1"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->devices[0].self_test);
  EXPECT_FALSE(config->devices[1].self_test);
  ExpectErrors({{"devices { name: \"cpu:0\" skip_self_test: true }",
                 "devices[0].skip_self_test",
                 {"\"cpu:0\"", "has no self-test"}}});
}

TEST(DevicesTest, BindingToANodeIsAGpusAndCanBeLeftOut) {
  const auto config = ParseConfig(
      WithListener(
          "devices { name: \"cuda:0\" } devices { name: \"cuda:1\" no_numa_binding: true }"),
      {}, {"cuda:0", "cuda:1"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->devices[0].numa_binding);
  EXPECT_FALSE(config->devices[1].numa_binding);
  ExpectErrors({{"devices { name: \"cpu:0\" no_numa_binding: true }",
                 "devices[0].no_numa_binding",
                 {"\"cpu:0\"", "leave it out"}}});
}

TEST(DevicesTest, OnlyDevicesOfTheBuildWithoutAList) {
  std::vector<std::string> wrong = {"",         "cpu",     "cpu:",  "cpu:00", "cpu:-1",
                                    "cpu:1000", "cuda:00", "CPU:0", "cuda:"};
#ifdef GEMMD_HAVE_CUDA
  EXPECT_EQ(ConfigOf("devices { name: \"cuda:3\" }").devices[0].name, "cuda:3");
#else
  wrong.push_back("cuda:0");
#endif
  for (const std::string& name : wrong) {
    ExpectErrors({{absl::StrCat("devices { name: \"", name, "\" }"),
                   "devices[0].name",
                   {absl::StrCat("\"", name, "\""), "give cpu:0"}}});
  }
}

TEST(DevicesTest, KnownDevicesDecideWhenGiven) {
  const std::vector<std::string> known = {"cpu:0", "cuda:0"};
  EXPECT_TRUE(ParseConfig(WithListener("devices { name: \"cuda:0\" }"), {}, known).ok());
  const auto config = ParseConfig(WithListener("devices { name: \"cuda:1\" }"), {}, known);
  EXPECT_THAT(std::string(config.status().message()),
              AllOf(HasSubstr("devices[0].name: \"cuda:1\""), HasSubstr("cpu:0, cuda:0")));
}

TEST(DevicesTest, NamesAreUnique) {
  ExpectErrors({{"devices { name: \"cpu:0\" } devices { name: \"cpu:0\" }",
                 "devices[1].name",
                 {"\"cpu:0\"", "once"}}});
}

TEST(DevicesTest, NumbersHaveBounds) {
  const auto device = [](const char* field) {
    return absl::StrCat("devices { name: \"cpu:0\" ", field, " }");
  };
  ExpectErrors({
      {device("memory_bytes: -1"), "devices[0].memory_bytes", {"-1 is below 1"}},
      {device("memory_bytes: 9000000000000000000"), "devices[0].memory_bytes", {"above"}},
      {device("threads: -1"), "devices[0].threads", {"-1 is below 1"}},
      {device("threads: 4097"), "devices[0].threads", {"4097 is above 4096"}},
  });
}

TEST(DevicesTest, DisabledKernelsAreNames) {
  ExpectErrors({
      {"devices { name: \"cpu:0\" disabled_kernels: \"a\" disabled_kernels: \"\" }",
       "devices[0].disabled_kernels[1]",
       {"\"\"", "gemmctl kernels"}},
      {"devices { name: \"cpu:0\" disabled_kernels: \"a\\nb\" }",
       "devices[0].disabled_kernels[0]",
       {"\"a\\nb\""}},
  });
  EXPECT_THAT(ConfigOf("devices { name: \"cpu:0\" disabled_kernels: \"cpu_f32:64x64\" }")
                  .devices[0]
                  .disabled_kernels,
              ElementsAre("cpu_f32:64x64"));
}

}  // namespace
}  // namespace gemmd::server
