// Matrix files as the commands take them: with --dtype, notes for the user, and the right exit
// code.

#ifndef GEMMD_CLIENT_CLI_LOAD_FILE_H_
#define GEMMD_CLIENT_CLI_LOAD_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/cli/args/command.h"
#include "client/cli/files/matrix.h"

namespace gemmd::cli {

absl::StatusOr<files::Matrix> LoadFile(const Invocation& call, const std::string& path);
absl::StatusOr<files::MatrixWriter> CreateFile(const std::string& path, files::DType dtype,
                                               std::vector<int64_t> shape);
absl::Status CommitFile(files::MatrixWriter& writer);

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_LOAD_FILE_H_
