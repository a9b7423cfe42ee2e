#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/files/matrix.h"
#include "client/cli/files/new_file.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/safetensors.h"
#include "client/cli/files/safetensors_edit.h"
#include "status/propagate.h"

namespace gemmd::files {

namespace {

using Pieces = std::vector<absl::Span<const std::byte>>;

size_t Total(const Pieces& pieces) {
  size_t bytes = 0;
  for (absl::Span<const std::byte> piece : pieces) bytes += piece.size();
  return bytes;
}

// What the file at `path` holds, for whoever was about to write to it.
std::string Holdings(const MatrixPath& path) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path.file);
  if (!file.ok()) return "cannot be read";
  const std::string size = absl::StrCat("holds ", file->bytes().size(), " bytes");
  if (!path.safetensors) {
    absl::StatusOr<NpyView> view = ParseNpy(file->bytes());
    return view.ok() ? absl::StrCat("holds a matrix ", ShapeText(view->shape)) : size;
  }
  absl::StatusOr<SafetensorsView> view = ParseSafetensors(file->bytes());
  if (!view.ok()) return absl::StrCat(size, " that are no .safetensors file");
  constexpr size_t kShown = 4;
  const size_t count = view->tensors.size();
  std::string names;
  for (size_t i = 0; i < std::min(count, kShown); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ",
                    absl::CHexEscape(view->tensors[i].name.substr(0, 80)));
  }
  return absl::StrCat("holds ", count, count == 1 ? " tensor (" : " tensors (", names,
                      count > kShown ? ", ..)" : ")");
}

absl::Status Refusal(const MatrixPath& path, const std::string& tensor) {
  const std::string remedy =
      path.safetensors ? absl::StrCat("--force puts '", tensor,
                                      "' into it and keeps its other tensors; or name another file")
                       : "--force replaces it; or name another file";
  return absl::AlreadyExistsError(
      absl::StrCat("'", path.file, "' exists and ", Holdings(path), ": ", remedy));
}

}  // namespace

struct MatrixWriter::State {
  NewFile file;
  std::byte* mapping = nullptr;
  size_t data_begin = 0;
  size_t data_bytes = 0;
  size_t total_bytes = 0;
  // Of a .safetensors file that is edited: the old one, and its other tensors.
  MappedFile old_file;
  struct stat old_stat = {};
  Pieces before, after;

  ~State() {
    if (mapping != nullptr) munmap(mapping, total_bytes);
  }

  // Into the new file at `offset`; by a system call, which fails where memory would raise SIGBUS
  // when another process cuts the old file.
  absl::Status CopyPieces(const Pieces& pieces, size_t offset) {
    for (absl::Span<const std::byte> piece : pieces) {
      while (!piece.empty()) {
        const ssize_t count = pwrite(file.fd(), piece.data(), piece.size(), offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return file.Failed("copy the other tensors into");
        piece.remove_prefix(static_cast<size_t>(count));
        offset += static_cast<size_t>(count);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckUnchanged() const {
    struct stat now;
    if (stat(file.path().c_str(), &now) == 0 && now.st_ino == old_stat.st_ino &&
        now.st_dev == old_stat.st_dev && now.st_size == old_stat.st_size &&
        now.st_mtim.tv_sec == old_stat.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == old_stat.st_mtim.tv_nsec) {
      return absl::OkStatus();
    }
    return absl::AbortedError(absl::StrCat(
        "'", file.path(), "' has changed while a tensor for it was computed; run it again"));
  }
};

MatrixWriter::MatrixWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
MatrixWriter::MatrixWriter(MatrixWriter&&) noexcept = default;
MatrixWriter& MatrixWriter::operator=(MatrixWriter&&) noexcept = default;
MatrixWriter::~MatrixWriter() = default;

absl::StatusOr<MatrixWriter> MatrixWriter::Create(absl::string_view text, DType dtype,
                                                  std::vector<int64_t> shape, Existing existing) {
  GEMMD_ASSIGN_OR_RETURN(MatrixPath path, ParseMatrixPath(text));
  GEMMD_ASSIGN_OR_RETURN(int64_t bytes, DenseBytes(shape, ElementSize(dtype)));
  const std::string tensor = path.tensor.empty() ? "D" : path.tensor;
  if (path.safetensors && tensor == internal::kMetadataKey) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no tensor can be called ", tensor, ": the format keeps it for itself; name another"));
  }
  auto state = std::make_unique<State>();
  const bool exists = stat(path.file.c_str(), &state->old_stat) == 0;
  if (exists && existing == Existing::kKeep) return Refusal(path, tensor);
  std::string header;
  if (path.safetensors && exists) {
    GEMMD_ASSIGN_OR_RETURN(MappedFile old_file, MappedFile::Open(path.file));
    absl::StatusOr<SafetensorsEdit> edit = EditSafetensors(old_file.bytes(), tensor, dtype, shape);
    if (!edit.ok()) {
      return absl::Status(
          edit.status().code(),
          absl::StrCat("'", path.file, "' exists and is no .safetensors file: ",
                       edit.status().message(), "; delete it, or name another file"));
    }
    state->old_file = std::move(old_file);
    state->before = std::move(edit->before);
    state->after = std::move(edit->after);
    header = std::move(edit->header);
  } else {
    header = path.safetensors ? SafetensorsHeader(tensor, dtype, shape) : NpyHeader(dtype, shape);
  }
  GEMMD_ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path.file, existing));
  state->file = std::move(file);
  state->data_begin = header.size() + Total(state->before);
  state->data_bytes = bytes;
  state->total_bytes = state->data_begin + bytes + Total(state->after);
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
  return {state_->mapping + state_->data_begin, state_->data_bytes};
}

absl::Status MatrixWriter::Commit() {
  if (state_->old_file.bytes().empty()) return state_->file.Commit();
  absl::Status copied =
      state_->CopyPieces(state_->before, state_->data_begin - Total(state_->before));
  if (copied.ok()) {
    copied = state_->CopyPieces(state_->after, state_->data_begin + state_->data_bytes);
  }
  if (!copied.ok()) return copied;
  GEMMD_RETURN_IF_ERROR(state_->CheckUnchanged());
  return state_->file.Commit();
}

}  // namespace gemmd::files
