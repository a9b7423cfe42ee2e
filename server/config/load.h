// From the config file to a checked Config. Every error is INVALID_ARGUMENT and starts with the
// field's path: "tenants[1].weight: 0.001 is below 0.01; give a value between 0.01 and 100". A text
// that does not parse has no path, but a line: "line 3, column 5: ...".

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/engine/config.h"

namespace gemmd::server {

struct ParsedConfig : Config {
  // As textproto, with every default filled in: what `gemmd --print-config` shows. Parsing it gives
  // the same config. Fields whose effective value is 0 or empty are left out, as in proto3.
  std::string text;
};

// Parses and checks `textproto`; an unknown field is an error that names the line.
// `extra_listeners` are --listen addresses, added with the tenant "default".
// `known_devices` are the names that devices may have; empty means any "cpu:N".
// Takes any bytes, at most 1 MiB.
absl::StatusOr<ParsedConfig> ParseConfig(std::string_view textproto,
                                         absl::Span<const std::string> extra_listeners = {},
                                         absl::Span<const std::string> known_devices = {});

// NOT_FOUND when there is no such file; the path stands before every other error.
absl::StatusOr<ParsedConfig> LoadConfig(const std::string& path,
                                        absl::Span<const std::string> extra_listeners = {},
                                        absl::Span<const std::string> known_devices = {});

// A Config for each of the file's devices, in its order, for a process of its own each: with that
// device alone, and addresses that differ (per_device.h). The two functions above refuse {device};
// these want it in Unix addresses when there are several devices.
absl::StatusOr<std::vector<ParsedConfig>> ParseConfigPerDevice(
    std::string_view textproto, absl::Span<const std::string> extra_listeners = {});
absl::StatusOr<std::vector<ParsedConfig>> LoadConfigPerDevice(
    const std::string& path, absl::Span<const std::string> extra_listeners = {});

// That of the process which serves `device`; INVALID_ARGUMENT names those there are.
absl::StatusOr<ParsedConfig> PickDevice(absl::Span<const ParsedConfig> per_device,
                                        std::string_view device);

// OK when `next` differs from `current` only in what may change while running; else
// FAILED_PRECONDITION naming the first path that may not: "devices: cannot change while running;
// restart gemmd".
absl::Status CheckReload(const Config& current, const Config& next);
// The same for configs by device.
absl::Status CheckReload(absl::Span<const ParsedConfig> current,
                         absl::Span<const ParsedConfig> next);

}  // namespace gemmd::server
