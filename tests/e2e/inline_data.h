// Programs with inline data, and which way it went.

#pragma once

#include <string>
#include <vector>

#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/types.pb.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {

inline constexpr int64_t kBytes = 300 << 10;
inline constexpr int64_t kShared = 16 << 20;  // what a session shares for inline data

inline std::string Pattern(int64_t size, int seed = 0) {
  std::string bytes(size, '\0');
  for (int64_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 131 + (i >> 8) + seed);
  return bytes;
}

inline client::Tensor Bytes(const client::Buffer& buffer, int64_t size = kBytes) {
  return client::Tensor(buffer.id(), client::DType::kI8, {size});
}

inline client::OpList Echo(const client::Buffer& buffer, const std::string& bytes) {
  const client::Tensor all = Bytes(buffer, static_cast<int64_t>(bytes.size()));
  return client::OpList().Add(client::Write{all, bytes}).Add(client::Read{all});
}

// The caller's ops, by the report.
inline std::vector<std::string> OpsOf(const client::Result& result) {
  std::vector<std::string> names;
  for (const v1::OpReport& op : result.report().ops()) names.push_back(op.op());
  return names;
}

// What ran: kernels without the device's prefix. Through shared memory a Write is a copy.
inline std::vector<std::string> Ran(const client::Result& result) {
  std::vector<std::string> names;
  for (const v1::OpReport& op : result.report().ops()) {
    names.push_back(op.kernel().substr(op.kernel().find('_') + 1));
  }
  return names;
}

inline const std::vector<std::string> kByShm = {"copy", "copy"};
inline const std::vector<std::string> kByGrpc = {"write", "read"};

// The library's own buffers in a session.
inline std::vector<v1::Buffer> StagingBuffers(client::Session& session) {
  session.FlushDeletions();
  std::vector<v1::Buffer> buffers = Must(session.ListBuffers());
  std::erase_if(buffers, [](const v1::Buffer& one) { return one.label() != "client inline data"; });
  return buffers;
}

inline int Staging(client::Session& session) {
  return static_cast<int>(StagingBuffers(session).size());
}

inline int64_t StagingBytes(client::Session& session) {
  int64_t bytes = 0;
  for (const v1::Buffer& one : StagingBuffers(session)) bytes += one.size_bytes();
  return bytes;
}

}  // namespace gemmd::e2e
