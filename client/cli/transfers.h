// What moving bytes told, as text and JSON.

#pragma once

#include <string>

#include "client/cli/args/output.h"
#include "client/cpp/transfer.h"

namespace gemmd::cli {

// "12.00 MiB by shm in 3.20 ms, 3.93 GB/s". GB/s are 10^9 bytes, as the reports of kernels have
// them.
std::string TransferText(const client::TransferReport& report);
Json TransferJson(const client::TransferReport& report);

// Two transfers of one direction as one.
void Accumulate(const client::TransferReport& report, client::TransferReport& sum);

// The choices of --route.
inline constexpr absl::string_view kRouteNames[] = {"auto", "grpc", "shm"};
client::TransferOptions::Route RouteOf(absl::string_view name);

}  // namespace gemmd::cli
