// A file being written. Until it is committed nothing stands under its name, so that an interrupted
// run leaves no half file.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::files {

// What happens to a file that has the name already.
enum class Existing {
  kKeep,     // it stays, and the new one is refused, even if it came after Create
  kReplace,  // the new one takes its place, with its permissions and, where possible, its owner
};

// Move-only; discards what was not committed.
class NewFile {
 public:
  // In the folder of `path`, of the file that it points to if it is a symbolic link. The errno's
  // code, with the path; ALREADY_EXISTS; FAILED_PRECONDITION for what is not a regular file.
  static absl::StatusOr<NewFile> Create(const std::string& path, Existing existing);

  NewFile() = default;
  NewFile(NewFile&& other) noexcept { *this = std::move(other); }
  NewFile& operator=(NewFile&& other) noexcept;
  ~NewFile();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  // Appends all of it.
  absl::Status Write(absl::string_view bytes);
  // One that takes another's place is on the disk before: after a crash there is the old file or
  // the new one.
  absl::Status Commit();
  // errno as a status: "cannot map 'D.npy'".
  absl::Status Failed(absl::string_view what) const;

 private:
  absl::Status Name(const std::string& name) const;
  absl::Status LinkWhereNoneIs();
  absl::Status Replace();

  std::string path_;  // links followed
  Existing existing_ = Existing::kKeep;
  // The name under which it is being written; none while it has none. In memory of its own, which
  // stays where it is: RemovePartialFiles looks there.
  std::unique_ptr<std::string> partial_;
  int fd_ = -1;
};

// Removes the files that have a name before they are whole. For a signal handler, before it ends
// the process: async-signal-safe.
void RemovePartialFiles();

}  // namespace gemmd::files
