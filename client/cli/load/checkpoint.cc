#include "client/cli/load/checkpoint.h"

#include <sys/mman.h>

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/args/printable.h"
#include "client/cli/files/safetensors.h"
#include "client/cli/files/safetensors_index.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kShard = ".safetensors";
constexpr absl::string_view kIndex = ".safetensors.index.json";

absl::Status InFile(const std::string& file, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(file, ": ", status.message()));
}

absl::Status AddShard(const std::string& file, Checkpoint& checkpoint) {
  GEMMD_ASSIGN_OR_RETURN(files::MappedFile mapped, files::MappedFile::Open(file));
  absl::StatusOr<files::SafetensorsView> view = files::ParseSafetensors(mapped.bytes());
  if (!view.ok()) return InFile(file, view.status());
  // Read ahead: each page is wanted once or twice, from the first to the last.
  madvise(const_cast<std::byte*>(mapped.bytes().data()), mapped.bytes().size(), MADV_SEQUENTIAL);
  for (files::SafetensorsEntry& entry : view->tensors) {
    checkpoint.tensors.push_back({.name = std::move(entry.name),
                                  .file = file,
                                  .dtype_name = std::move(entry.dtype_name),
                                  .dtype = entry.dtype,
                                  .shape = std::move(entry.shape),
                                  .data = entry.data});
  }
  checkpoint.files.push_back(std::move(mapped));
  return absl::OkStatus();
}

// The only file of the folder that ends so; empty when there is none.
absl::StatusOr<std::string> TheOnly(const std::string& folder, absl::string_view ending) {
  std::set<std::string> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (absl::EndsWith(entry.path().string(), ending)) found.insert(entry.path().string());
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat("cannot list '", folder, "': ", error.message()));
  }
  if (found.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("'", folder, "' holds ", found.size(),
                                                   " files *", ending,
                                                   " and no single index to go by; name "
                                                   "one of them"));
  }
  return found.empty() ? std::string() : *found.begin();
}

absl::StatusOr<Checkpoint> OpenSharded(const std::string& index) {
  GEMMD_ASSIGN_OR_RETURN(files::MappedFile mapped, files::MappedFile::Open(index));
  const absl::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()),
                               mapped.bytes().size());
  absl::StatusOr<std::map<std::string, std::string>> map = files::ParseSafetensorsIndex(text);
  if (!map.ok()) return InFile(index, map.status());
  const fs::path folder = fs::path(index).parent_path();
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : *map) shards.insert(shard);
  Checkpoint checkpoint;
  for (const std::string& shard : shards) {
    absl::Status added = AddShard((folder / shard).string(), checkpoint);
    if (absl::IsNotFound(added)) {
      return absl::NotFoundError(
          absl::StrCat(index, " names ", Printable(shard), ", and ", added.message()));
    }
    if (!added.ok()) return added;
  }
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    auto entry = map->find(tensor.name);
    const std::string shard = fs::path(tensor.file).filename().string();
    if (entry == map->end() || entry->second != shard) {
      return absl::InvalidArgumentError(absl::StrCat(
          tensor.file, ": tensor '", Printable(tensor.name), "' is ",
          entry == map->end() ? "not in the index"
                              : absl::StrCat("in ", Printable(entry->second), " by the index"),
          ": ", index, " is of another checkpoint, or damaged"));
    }
    entry->second.clear();  // found
  }
  for (const auto& [tensor, shard] : *map) {
    if (shard.empty()) continue;
    return absl::NotFoundError(absl::StrCat(index, ": tensor '", Printable(tensor), "' is not in ",
                                            Printable(shard), ", as it says"));
  }
  return checkpoint;
}

}  // namespace

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    GEMMD_ASSIGN_OR_RETURN(std::string index, TheOnly(path, kIndex));
    if (!index.empty()) return OpenSharded(index);
    GEMMD_ASSIGN_OR_RETURN(std::string file, TheOnly(path, kShard));
    if (file.empty()) {
      return absl::NotFoundError(absl::StrCat("'", path, "' holds no .safetensors file"));
    }
    return OpenCheckpoint(file);
  }
  if (absl::EndsWith(path, ".json")) return OpenSharded(path);
  if (!absl::EndsWith(path, kShard)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' is neither FILE.safetensors, its index (.json), nor a folder"));
  }
  Checkpoint checkpoint;
  GEMMD_RETURN_IF_ERROR(AddShard(path, checkpoint));
  return checkpoint;
}

}  // namespace gemmd::cli
