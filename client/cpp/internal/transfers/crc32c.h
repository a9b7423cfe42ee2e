// CRC-32C (Castagnoli), as iSCSI, ext4 and gemmd's transfers use it: reflected, initial value and
// final xor all ones. Crc32c("123456789") is 0xE3069283.

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace gemmd::client {

// `crc` is that of the bytes before, so that pieces chain: Crc32c(b, Crc32c(a)).
uint32_t Crc32c(absl::string_view data, uint32_t crc = 0);

}  // namespace gemmd::client
