// The numbers of Protocol Buffers' wire format, for what is read and written without messages.

#ifndef GEMMD_SERVER_SERVICE_WIRE_H_
#define GEMMD_SERVER_SERVICE_WIRE_H_

#include <cstdint>

namespace gemmd::server {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint32_t Tag(int field, WireType type) {
  return static_cast<uint32_t>(field) << 3 | type;
}

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_WIRE_H_
