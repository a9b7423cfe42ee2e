// A file's bytes, mapped for reading.

#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace gemmd::files {

// Move-only; unmaps on destruction. If another process truncates the file meanwhile, reading past
// its new end kills this process (SIGBUS): files are expected to stand still, as with every mmap.
class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT for what is not a regular file. An empty file
  // maps to no bytes.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  absl::Span<const std::byte> bytes() const { return bytes_; }

 private:
  absl::Span<const std::byte> bytes_;
};

}  // namespace gemmd::files
