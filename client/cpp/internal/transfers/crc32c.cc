#include "client/cpp/internal/transfers/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace gemmd::client {

uint32_t Crc32c(absl::string_view data, uint32_t crc) {
  constexpr size_t kMost = 1 << 30;  // the library's length is an int
  crc = ~crc;                        // it neither sets the initial value nor applies the final xor
  while (!data.empty()) {
    const size_t size = std::min(data.size(), kMost);
    // Reads only; the parameter lacks its const.
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(data.data()));
    crc = crc32_iscsi(bytes, static_cast<int>(size), crc);
    data.remove_prefix(size);
  }
  return ~crc;
}

}  // namespace gemmd::client
