// A model's tensors as they lie on disk: one .safetensors file, or shards with the JSON index that
// tells which tensor is in which. Files are mapped, not read.
//
//   absl::StatusOr<Checkpoint> model = OpenCheckpoint("llama/");
//   for (const CheckpointTensor& tensor : model->tensors) Use(tensor.name, tensor.data);

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/files/dtype.h"
#include "client/cli/files/mapped_file.h"

namespace gemmd::cli {

struct CheckpointTensor {
  std::string name;
  std::string file;                   // for messages
  std::string dtype_name;             // as the file writes it: "F8_E4M3"
  std::optional<files::DType> dtype;  // nothing when gemmd does not serve this type
  std::vector<int64_t> shape;         // as the file has it: [] is a scalar
  absl::Span<const std::byte> data;   // row-major; in a file of the checkpoint
};

// Move-only; the tensors' data live as long as it does.
struct Checkpoint {
  std::vector<files::MappedFile> files;
  std::vector<CheckpointTensor> tensors;  // file by file, in the order of their data
};

// `path`: FILE.safetensors, an index (FILE.json), or a folder that holds one of either. NOT_FOUND
// for a file that is missing, also one that the index names; INVALID_ARGUMENT for one that is cut
// short or damaged, a tensor that is there twice, and an index that its shards contradict. The
// error names the file.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path);

}  // namespace gemmd::cli
