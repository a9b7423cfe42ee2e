// An operand of 'gemmctl matmul': a matrix file, or a published weight ("@m/w").

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/files/matrix.h"
#include "client/cpp/session.h"

namespace gemmd::cli {

// Move-only.
class MatmulInput {
 public:
  MatmulInput() = default;
  explicit MatmulInput(files::Matrix file) : file_(std::move(file)) {}
  // NOT_FOUND, or INVALID_ARGUMENT when the buffer is no matrix.
  static absl::StatusOr<MatmulInput> Find(client::Session& session, const std::string& name);

  bool published() const { return published_.has_value(); }
  // Of the scales behind E4M3 values, as 'gemmctl load' and gemmd.Linear publish them:
  // kBlock128x128 or kPerRow; kNone: there are none.
  client::ScaleGranularity granularity() const;
  bool scaled() const { return granularity() != client::ScaleGranularity::kNone; }
  files::DType dtype() const;
  std::vector<int64_t> shape() const;

  const files::Matrix& file() const { return file_; }             // unless published
  const client::Buffer& buffer() const { return *published_; }    // if it is
  client::Tensor values() const { return published_->tensor(); }  // the same
  client::Tensor scales() const;                                  // if scaled

 private:
  files::Matrix file_;
  std::optional<client::Buffer> published_;
};

}  // namespace gemmd::cli
