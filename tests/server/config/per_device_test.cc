#include "server/config/per_device.h"

#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kTwo[] = "devices { name: \"cpu:0\" } devices { name: \"cpu:12\" threads: 3 }\n";

std::string Listeners(const std::vector<std::string>& addresses) {
  std::string text;
  for (const std::string& address : addresses) {
    absl::StrAppend(&text, "listeners { address: \"", address, "\" }\n");
  }
  return text;
}

std::vector<ParsedConfig> Split(const std::string& text,
                                const std::vector<std::string>& listen = {}) {
  auto configs = ParseConfigPerDevice(text, listen);
  EXPECT_TRUE(configs.ok()) << text << "\n" << configs.status();
  return configs.ok() ? *std::move(configs) : std::vector<ParsedConfig>(2);
}

std::string SplitError(const std::string& text, const std::vector<std::string>& listen = {}) {
  const auto configs = ParseConfigPerDevice(text, listen);
  EXPECT_EQ(configs.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(std::string(configs.status().message()), HasSubstr("; ")) << "no remedy";
  return std::string(configs.status().message());
}

std::vector<std::string> AddressesOf(const Config& config) {
  std::vector<std::string> addresses;
  for (const ListenerConfig& listener : config.listeners) addresses.push_back(listener.address);
  return addresses;
}

TEST(PerDeviceTest, EachProcessHasItsDeviceAlone) {
  const std::vector<ParsedConfig> configs = Split(Listeners({"127.0.0.1:0"}) + kTwo);
  ASSERT_EQ(configs.size(), 2);
  ASSERT_EQ(configs[0].devices.size(), 1);
  ASSERT_EQ(configs[1].devices.size(), 1);
  EXPECT_EQ(configs[0].devices[0].name, "cpu:0");
  EXPECT_EQ(configs[1].devices[0].name, "cpu:12");
  EXPECT_EQ(configs[1].devices[0].threads, 3);
}

TEST(PerDeviceTest, UnixAddressesGetTheDevicesName) {
  const std::string text =
      Listeners({"unix:/run/{device}.sock", "unix-abstract:{device}/{device}"}) +
      "share { socket_path: \"/run/{device}/share.sock\" }" + kTwo;
  const std::vector<ParsedConfig> configs = Split(text, {"unix:/tmp/{device}"});
  EXPECT_THAT(AddressesOf(configs[0]),
              ElementsAre("unix:/run/cpu-0.sock", "unix-abstract:cpu-0/cpu-0", "unix:/tmp/cpu-0"));
  EXPECT_THAT(
      AddressesOf(configs[1]),
      ElementsAre("unix:/run/cpu-12.sock", "unix-abstract:cpu-12/cpu-12", "unix:/tmp/cpu-12"));
  EXPECT_EQ(configs[0].share.socket_path, "/run/cpu-0/share.sock");
  EXPECT_EQ(configs[1].share.socket_path, "/run/cpu-12/share.sock");
}

TEST(PerDeviceTest, PortsMoveByTheDevicesIndex) {
  const std::string text = Listeners({"127.0.0.1:8470", "[::1]:8480", "127.0.0.1:0"}) +
                           "metrics { address: \"0.0.0.0:65534\" }" + kTwo;
  const std::vector<ParsedConfig> configs = Split(text, {"localhost:1"});
  EXPECT_THAT(AddressesOf(configs[0]),
              ElementsAre("127.0.0.1:8470", "[::1]:8480", "127.0.0.1:0", "localhost:1"));
  EXPECT_THAT(AddressesOf(configs[1]),
              ElementsAre("127.0.0.1:8471", "[::1]:8481", "127.0.0.1:0", "localhost:2"));
  EXPECT_EQ(configs[0].metrics_address, "0.0.0.0:65534");
  EXPECT_EQ(configs[1].metrics_address, "0.0.0.0:65535");
}

TEST(PerDeviceTest, APlaceThatAllWouldShareIsRefused) {
  EXPECT_THAT(SplitError(Listeners({"unix:/run/gemmd.sock"}) + kTwo),
              AllOf(StartsWith("listeners[0].address: \"unix:/run/gemmd.sock\""),
                    HasSubstr("put {device} into it")));
  EXPECT_THAT(SplitError(Listeners({"127.0.0.1:0", "unix-abstract:gemmd"}) + kTwo),
              StartsWith("listeners[1].address: \"unix-abstract:gemmd\""));
  EXPECT_THAT(SplitError(Listeners({"127.0.0.1:0"}) + "share { socket_path: \"/a\" }" + kTwo),
              StartsWith("share.socket_path: \"/a\""));
  EXPECT_THAT(SplitError(Listeners({"127.0.0.1:0"}) + kTwo, {"unix:/a"}),
              StartsWith("--listen[0]: \"unix:/a\""));
}

TEST(PerDeviceTest, OneDeviceNeedsNoNameInItsPlaces) {
  const std::vector<ParsedConfig> configs =
      Split(Listeners({"unix:/run/gemmd.sock", "127.0.0.1:8470"}) + "devices { name: \"cpu:3\" }");
  ASSERT_EQ(configs.size(), 1);
  EXPECT_THAT(AddressesOf(configs[0]), ElementsAre("unix:/run/gemmd.sock", "127.0.0.1:8470"));
}

TEST(PerDeviceTest, WithoutDevicesThereIsTheDefaultOne) {
  const std::vector<ParsedConfig> configs = Split(Listeners({"unix:/run/{device}.sock"}));
  ASSERT_EQ(configs.size(), 1);
  EXPECT_EQ(configs[0].devices[0].name, "cpu:0");
  EXPECT_THAT(AddressesOf(configs[0]), ElementsAre("unix:/run/cpu-0.sock"));
}

TEST(PerDeviceTest, PortsThatMeetAnotherDevicesAreRefused) {
  const std::string metrics = "metrics { address: \"127.0.0.1:8471\" }";
  EXPECT_THAT(SplitError(Listeners({"127.0.0.1:8470"}) + metrics + kTwo),
              AllOf(StartsWith("listeners[0].address: \"127.0.0.1:8471\" of cpu:12"),
                    HasSubstr("metrics.address of cpu:0"), HasSubstr("2 or more apart")));
  EXPECT_THAT(SplitError(Listeners({"127.0.0.1:65535"}) + kTwo),
              AllOf(StartsWith("listeners[0].address: port 65535"), HasSubstr("above 65535")));
}

TEST(PerDeviceTest, PathsThatMeetAnotherDevicesAreRefused) {
  EXPECT_THAT(SplitError(Listeners({"unix:/run/{device}1"}) +
                         "share { socket_path: \"/run/{device}\" }"
                         "devices { name: \"cpu:1\" } devices { name: \"cpu:11\" }"),
              AllOf(StartsWith("share.socket_path: \"/run/cpu-11\" of cpu:11"),
                    HasSubstr("listeners[0].address of cpu:1,")));
}

TEST(PerDeviceTest, WhatIsWrongAnywayIsToldByItsPath) {
  EXPECT_THAT(SplitError(Listeners({"127.0.0.1:0"}) +
                         "devices { name: \"cpu:0\" } devices { name: \"tpu:0\" }"),
              StartsWith("devices[1].name"));
  EXPECT_THAT(SplitError(Listeners({"127.0.0.1:0"}) +
                         "devices { name: \"cpu:0\" } devices { name: \"cpu:0\" }"),
              StartsWith("devices[1].name"));
  EXPECT_THAT(SplitError(Listeners({"127.0.0.1:x"}) + kTwo), StartsWith("listeners[0].address"));
  EXPECT_THAT(SplitError(Listeners({"127.0.0.1:{device}"}) + kTwo),
              StartsWith("listeners[0].address: port \"{device}\""));
  // The length counts with the name in it.
  EXPECT_THAT(SplitError(Listeners({"unix:/{device}" + std::string(102, 'a')}) + kTwo),
              AllOf(StartsWith("listeners[0].address"), HasSubstr("above 107")));
}

TEST(PerDeviceTest, OneProcessTakesNoPlaceForADevice) {
  for (const std::string& rest :
       {Listeners({"unix:/run/{device}.sock"}), Listeners({"unix-abstract:{device}"}),
        std::string("share { socket_path: \"/{device}\" }"),
        std::string("metrics { address: \"{device}:1\" }")}) {
    EXPECT_THAT(ErrorOf(rest),
                AllOf(HasSubstr("{device}"), HasSubstr("--supervise or --device NAME")));
  }
  const auto listen = ParseConfig("", {"unix:/{device}"});
  EXPECT_THAT(std::string(listen.status().message()), StartsWith("--listen[0]: "));
}

TEST(PerDeviceTest, TheConfigOfADeviceIsFoundByItsName) {
  const std::vector<ParsedConfig> configs = Split(Listeners({"127.0.0.1:8470"}) + kTwo);
  const auto second = PickDevice(configs, "cpu:12");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(AddressesOf(*second), ElementsAre("127.0.0.1:8471"));
  const auto none = PickDevice(configs, "cpu:1");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()),
              AllOf(HasSubstr("\"cpu:1\""), HasSubstr("give cpu:0 or cpu:12")));
}

TEST(PerDeviceTest, AReloadMayNotChangeADevice) {
  const std::string listeners = Listeners({"127.0.0.1:0"});
  const std::vector<ParsedConfig> two = Split(listeners + kTwo);
  EXPECT_TRUE(CheckReload(two, Split(listeners + kTwo + "limits { max_ops: 7 }")).ok());
  const absl::Status fewer = CheckReload(two, Split(listeners));
  EXPECT_EQ(fewer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(fewer.message()), StartsWith("devices: "));
  const absl::Status other = CheckReload(
      two, Split(listeners + "devices { name: \"cpu:0\" } devices { name: \"cpu:12\" }"));
  EXPECT_THAT(std::string(other.message()), StartsWith("devices: "));
}

TEST(PerDeviceTest, NamesAreFilledInWhereverTheyGo) {
  EXPECT_FALSE(HasDevicePlace("/run/{devic}"));
  EXPECT_TRUE(HasDevicePlace("/run/{device}"));
  EXPECT_EQ(WithDeviceName("{device}/a/{device}", "cuda:1"), "cuda-1/a/cuda-1");
  EXPECT_EQ(WithDeviceName("{{device}}", "cpu:0"), "{cpu-0}");
  EXPECT_EQ(WithDeviceName("{{device}device}", "cpu:0"), "{cpu-0device}");
}

}  // namespace
}  // namespace gemmd::server
