#include "client/cli/device_view.h"

#include <gtest/gtest.h>

#include "gemmd/v1/device_service.pb.h"

namespace gemmd::cli {
namespace {

TEST(DeviceViewTest, NodeZeroIsANodeAndNoneIsNone) {
  v1::Device device;
  EXPECT_EQ(NodeText(device), "-");
  EXPECT_TRUE(DeviceJson(device).at("numa_node").is_null());
  device.set_numa_node(0);
  EXPECT_EQ(NodeText(device), "0");
  EXPECT_EQ(DeviceJson(device).at("numa_node"), 0);
  device.set_numa_node(3);
  EXPECT_EQ(NodeText(device), "3");
}

TEST(DeviceViewTest, PinnedMemoryIsInTheJson) {
  v1::Device device;
  device.set_pinned_bytes(4096);
  EXPECT_EQ(DeviceJson(device).at("pinned_bytes"), 4096);
}

TEST(DeviceViewTest, WhatADeviceDoesNotTellIsADash) {
  v1::Device device;
  EXPECT_TRUE(DeviceJson(device).at("sensors").is_null());
  device.mutable_sensors()->set_power_watts(312.4);
  EXPECT_EQ(PowerText(device), "312 W");
  device.mutable_sensors()->set_power_limit_watts(700);
  EXPECT_EQ(PowerText(device), "312 of 700 W");
  EXPECT_EQ(ClockText(device), "-");
  EXPECT_EQ(TemperatureText(device), "-");
}

}  // namespace
}  // namespace gemmd::cli
