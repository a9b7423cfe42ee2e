#include "kernels/cuda/tuning/table_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

namespace fs = std::filesystem;

std::string NoteOf(const std::string& path, const TuningTable& table) {
  return table.stale().empty() ? "" : absl::StrCat(path, ": ", table.stale());
}

absl::StatusOr<std::vector<std::string>> JsonFilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".json") files.push_back(at->path().string());
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("tuning tables in ", folder, " cannot be read: ", error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

absl::StatusOr<ShippedTimes> LoadTables(const std::string& path, std::string_view gpu_model) {
  std::error_code none;
  if (!fs::is_directory(path, none)) {
    absl::StatusOr<TuningTable> table = TuningTable::Load(path, gpu_model);
    if (!table.ok()) return table.status();
    std::string note = NoteOf(path, *table);
    return ShippedTimes{*std::move(table), std::move(note)};
  }
  const absl::StatusOr<std::vector<std::string>> files = JsonFilesIn(path);
  if (!files.ok()) return files.status();
  ShippedTimes times;
  std::vector<std::string> notes;
  int found = 0;
  for (const std::string& file : *files) {
    const absl::StatusOr<std::string> model = TuningTable::ModelOf(file);
    if (!model.ok()) return model.status();
    if (*model != gpu_model) continue;
    absl::StatusOr<TuningTable> table = TuningTable::Load(file, gpu_model);
    if (!table.ok()) return table.status();
    if (std::string note = NoteOf(file, *table); !note.empty()) notes.push_back(std::move(note));
    times.table = found++ == 0 ? *std::move(table) : TuningTable::Merge(times.table, *table);
  }
  if (found == 0) {
    notes.push_back(absl::StrCat(path, ": none of ", files->size(), " tables was measured on \"",
                                 Text(gpu_model),
                                 "\"; a cost model chooses the kernels. `gemmctl tune` "
                                 "measures them, `gemm_bench --tune` writes a table"));
  }
  times.note = absl::StrJoin(notes, "; ");
  return times;
}

}  // namespace gemmd::kernels::cuda
