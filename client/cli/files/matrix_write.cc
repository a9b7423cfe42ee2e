#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/files/matrix.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/safetensors.h"

namespace gemmd::files {

struct MatrixWriter::State {
  std::string path;
  std::string partial;  // the name under which it is being written; empty while it has none
  int fd = -1;
  std::byte* mapping = nullptr;
  size_t header_bytes = 0;
  size_t total_bytes = 0;

  ~State() {
    if (mapping != nullptr) munmap(mapping, total_bytes);
    if (fd >= 0) close(fd);
    if (!partial.empty()) unlink(partial.c_str());
  }

  absl::Status Failed(absl::string_view what) const {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " '", path, "'"));
  }

  absl::Status OpenNameless() {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
    fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd >= 0) return absl::OkStatus();
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
      return Failed("create a file for");
    // A file system without nameless files: a killed run may leave this one behind.
    partial = absl::StrCat(path, ".partial-", getpid());
    fd = open(partial.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (fd >= 0) return absl::OkStatus();
    partial.clear();
    return Failed("create a file for");
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
  auto state = std::make_unique<State>();
  state->path = path->file;
  state->header_bytes = header.size();
  state->total_bytes = header.size() + *bytes;
  absl::Status opened = state->OpenNameless();
  if (!opened.ok()) return opened;
  // Room is taken now: a full disk is an error here, not a SIGBUS while the mapping is filled.
  errno = posix_fallocate(state->fd, 0, state->total_bytes);
  if (errno != 0) return state->Failed(absl::StrCat("reserve ", state->total_bytes, " bytes for"));
  void* mapping =
      mmap(nullptr, state->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, state->fd, 0);
  if (mapping == MAP_FAILED) return state->Failed("map");
  state->mapping = static_cast<std::byte*>(mapping);
  std::memcpy(state->mapping, header.data(), header.size());
  return MatrixWriter(std::move(state));
}

absl::Span<std::byte> MatrixWriter::data() {
  return {state_->mapping + state_->header_bytes, state_->total_bytes - state_->header_bytes};
}

absl::Status MatrixWriter::Commit() {
  State& state = *state_;
  if (state.partial.empty()) {
    // A nameless file can only be linked to a name that is free, so it gets one and is then moved
    // over the old file.
    const std::string name = absl::StrCat(state.path, ".partial-", getpid());
    const std::string self = absl::StrCat("/proc/self/fd/", state.fd);
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return state.Failed("name");
    }
    state.partial = name;
  }
  if (std::rename(state.partial.c_str(), state.path.c_str()) != 0)
    return state.Failed("move into place");
  state.partial.clear();
  return absl::OkStatus();
}

}  // namespace gemmd::files
