// Matrix files as the commands take them: with --dtype, notes for the user, and the right exit
// code.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/args/command.h"
#include "client/cli/files/matrix.h"

namespace gemmd::cli {

absl::StatusOr<files::Matrix> LoadFile(const Invocation& call, const std::string& path);

// One warning about all of a command's files that held float64, which no device multiplies.
// Integers are refused by LoadFile: there is no float32 for many of them.
struct LoadedFile {
  std::string path;
  const files::Matrix& matrix;
};
void WarnOfNarrowing(const Invocation& call, const std::vector<LoadedFile>& files);

// For a command that writes a matrix: what it does about a file that is there.
inline constexpr Flag kForceFlag = {
    .name = "force",
    .help =
        "write to a file that exists, too: a .npy file is replaced; in a .safetensors file the "
        "tensor is added or replaced, the others stay"};

// By --force, a file of that name is replaced, or edited (files::MatrixWriter).
absl::StatusOr<files::MatrixWriter> CreateFile(const Args& args, const std::string& path,
                                               files::DType dtype, std::vector<int64_t> shape);
absl::Status CommitFile(files::MatrixWriter& writer);

}  // namespace gemmd::cli
