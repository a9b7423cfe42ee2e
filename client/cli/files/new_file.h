// A file being written. Until it is committed nothing stands under its name, so that an interrupted
// run leaves no half file.

#ifndef GEMMD_CLIENT_CLI_FILES_NEW_FILE_H_
#define GEMMD_CLIENT_CLI_FILES_NEW_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::files {

// Move-only; discards what was not committed.
class NewFile {
 public:
  // In the folder of `path`, which may exist already. The errno's code, with the path.
  static absl::StatusOr<NewFile> Create(const std::string& path);

  NewFile() = default;
  NewFile(NewFile&& other) noexcept { *this = std::move(other); }
  NewFile& operator=(NewFile&& other) noexcept;
  ~NewFile();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  // Appends all of it.
  absl::Status Write(absl::string_view bytes);
  absl::Status Commit();  // replaces a file of that name
  // errno as a status: "cannot map 'D.npy'".
  absl::Status Failed(absl::string_view what) const;

 private:
  std::string path_;
  std::string partial_;  // the name under which it is being written; empty while it has none
  int fd_ = -1;
};

}  // namespace gemmd::files

#endif  // GEMMD_CLIENT_CLI_FILES_NEW_FILE_H_
