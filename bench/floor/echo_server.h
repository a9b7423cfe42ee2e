// The peer of the floor measurements: an echo server, and OpenBLAS, in a process of their own.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gemmd::bench {

// Callback API, no interceptors, no work: unary and bidi echo, and a sink of raw buffers. Stops on
// destruction.
class EchoServer {
 public:
  // "127.0.0.1:0" picks a port; "unix-abstract:NAME" and "unix:/PATH" as they are.
  static absl::StatusOr<std::unique_ptr<EchoServer>> Start(const std::string& address);
  virtual ~EchoServer() = default;
  // Where to connect to.
  virtual const std::string& target() const = 0;
};

}  // namespace gemmd::bench
