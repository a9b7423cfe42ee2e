// What a device's `tuning_table` names: a table, or a folder of tables of several models of GPU.

#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/cuda/tuning/tuning_table.h"

namespace gemmd::kernels::cuda {

struct ShippedTimes {
  TuningTable table;
  std::string note;  // for the log: what was left out of it, or that there is none; may be empty
};

// Of a file: TuningTable::Load. Of a folder: its *.json files that were measured on this model of
// GPU, merged in the order of their names; those of other models are passed over, and no table at
// all is not an error. NOT_FOUND when a folder cannot be read; else as Load.
absl::StatusOr<ShippedTimes> LoadTables(const std::string& path, std::string_view gpu_model);

}  // namespace gemmd::kernels::cuda
