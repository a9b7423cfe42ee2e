#include "client/cli/load_file.h"

#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/quantize.h"

namespace gemmd::cli {
namespace {

absl::Status BadFile(const absl::Status& status) { return WithExit(ExitCode::kBadFile, status); }

}  // namespace

absl::StatusOr<files::Matrix> LoadFile(const Invocation& call, const std::string& path) {
  std::optional<files::DType> opaque_as;
  if (call.args.Given("dtype")) opaque_as = files::DTypeFromName(call.args.Text("dtype"));
  absl::StatusOr<files::Matrix> matrix = files::LoadMatrix(path, opaque_as);
  if (!matrix.ok()) return BadFile(matrix.status());
  for (const std::string& note : matrix->notes()) call.out.Note(absl::StrCat(path, ": ", note));
  return matrix;
}

void WarnOfNarrowing(const Invocation& call, const std::vector<LoadedFile>& files) {
  std::string narrowed;
  int64_t overflowed = 0;
  for (const LoadedFile& file : files) {
    if (!file.matrix.narrowed()) continue;
    absl::StrAppend(&narrowed, narrowed.empty() ? "" : ", ", file.path);
    overflowed += file.matrix.overflowed();
  }
  if (narrowed.empty()) return;
  call.out.Note(absl::StrCat(
      "warning: ", narrowed, ": float64 is narrowed to float32",
      overflowed > 0 ? absl::StrCat(", and ", overflowed, " of the values became infinite") : "",
      "; save as float32 what needs no more"));
}

absl::StatusOr<files::MatrixWriter> CreateFile(const Args& args, const std::string& path,
                                               files::DType dtype, std::vector<int64_t> shape) {
  absl::StatusOr<files::MatrixWriter> writer = files::MatrixWriter::Create(
      path, dtype, std::move(shape),
      args.On(kForceFlag.name) ? files::Existing::kReplace : files::Existing::kKeep);
  if (!writer.ok()) return BadFile(writer.status());
  return writer;
}

absl::Status CommitFile(files::MatrixWriter& writer) {
  absl::Status status = writer.Commit();
  return status.ok() ? status : BadFile(status);
}

}  // namespace gemmd::cli
