#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/files/matrix.h"
#include "client/cli/files/new_file.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/safetensors.h"

namespace gemmd::files {

struct MatrixWriter::State {
  NewFile file;
  std::byte* mapping = nullptr;
  size_t header_bytes = 0;
  size_t total_bytes = 0;

  ~State() {
    if (mapping != nullptr) munmap(mapping, total_bytes);
  }
};

MatrixWriter::MatrixWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
MatrixWriter::MatrixWriter(MatrixWriter&&) noexcept = default;
MatrixWriter& MatrixWriter::operator=(MatrixWriter&&) noexcept = default;
MatrixWriter::~MatrixWriter() = default;

absl::StatusOr<MatrixWriter> MatrixWriter::Create(absl::string_view text, DType dtype,
                                                  std::vector<int64_t> shape) {
  absl::StatusOr<MatrixPath> path = ParseMatrixPath(text);
  if (!path.ok()) return path.status();
  absl::StatusOr<int64_t> bytes = DenseBytes(shape, ElementSize(dtype));
  if (!bytes.ok()) return bytes.status();
  const std::string header =
      path->safetensors ? SafetensorsHeader(path->tensor.empty() ? "D" : path->tensor, dtype, shape)
                        : NpyHeader(dtype, shape);
  absl::StatusOr<NewFile> file = NewFile::Create(path->file);
  if (!file.ok()) return file.status();
  auto state = std::make_unique<State>();
  state->file = *std::move(file);
  state->header_bytes = header.size();
  state->total_bytes = header.size() + *bytes;
  // Room is taken now: a full disk is an error here, not a SIGBUS while the mapping is filled.
  errno = posix_fallocate(state->file.fd(), 0, state->total_bytes);
  if (errno != 0) {
    return state->file.Failed(absl::StrCat("reserve ", state->total_bytes, " bytes for"));
  }
  void* mapping =
      mmap(nullptr, state->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, state->file.fd(), 0);
  if (mapping == MAP_FAILED) return state->file.Failed("map");
  state->mapping = static_cast<std::byte*>(mapping);
  std::memcpy(state->mapping, header.data(), header.size());
  return MatrixWriter(std::move(state));
}

absl::Span<std::byte> MatrixWriter::data() {
  return {state_->mapping + state_->header_bytes, state_->total_bytes - state_->header_bytes};
}

absl::Status MatrixWriter::Commit() { return state_->file.Commit(); }

}  // namespace gemmd::files
