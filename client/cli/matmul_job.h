// One matmul of files through the daemon: matrices up, quantised there, multiplied, D back, and
// what to check it against.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/args/output.h"
#include "client/cli/files/matrix.h"
#include "client/cli/matmul_input.h"
#include "client/cli/numerics/shape.h"
#include "client/cli/numerics/verify.h"
#include "client/cli/quantize.h"
#include "client/cpp/session.h"

namespace gemmd::cli {

struct MatmulInputs {
  MatmulInput a;
  MatmulInput b;
  std::optional<files::Matrix> c;
  std::optional<files::Matrix> bias;
};

struct MatmulSettings {
  QuantizeMode quantize;
  client::DType out_dtype = client::DType::kF32;
  bool nt = false;  // B lies as [n, k]
  float alpha = 1;
  float beta = 0;
  Activation activation = Activation::kNone;
  std::string kernel;
  client::TransferOptions::Route route = client::TransferOptions::Route::kAuto;
};

// D against float64, twice.
struct Verified {
  VerifyReport kernel;  // of the operands as the server multiplied them
  VerifyReport files;   // of what the files hold; its bound and ok mean nothing
};

class MatmulJob {
 public:
  // All three outlive the job.
  MatmulJob(client::Session& session, const MatmulInputs& inputs, const MatmulSettings& settings,
            const MatmulShape& shape, const Output& out)
      : session_(session), inputs_(inputs), settings_(settings), shape_(shape), out_(out) {}

  // In this order. Errors are the client library's.
  absl::Status Upload();
  absl::StatusOr<client::Result> Run();
  absl::Status DownloadD(absl::Span<std::byte> d);
  // Fetches what the server multiplied: values and scales as it quantised them, C and bias as it
  // converted them.
  absl::StatusOr<Verified> Check(absl::Span<const std::byte> d);

  const client::TransferReport& uploaded() const { return uploaded_; }
  const client::TransferReport& downloaded() const { return downloaded_; }

 private:
  // An operand on the server, before and after quantisation.
  struct ServerOperand {
    client::Buffer uploaded;  // empty of a published one
    client::Tensor source;    // what was uploaded, or found
    client::Buffer values;    // empty unless quantised
    client::Buffer scales;    // of client::ScalesRoom
    client::Operand operand;  // what the matmul takes
  };
  absl::StatusOr<client::Buffer> UploadMatrix(const files::Matrix& matrix, const std::string& name);
  // Adds the Quantize op; [batch, rows, k] are the extents of `view`, the source as the matmul
  // wants it.
  absl::Status Quantize(ServerOperand& operand, const client::Tensor& view,
                        client::ScaleGranularity granularity, client::OpList& ops);
  // Or what is published with its scales, as it is.
  absl::Status Operand(const MatmulInput& input, ServerOperand& operand, const client::Tensor& view,
                       client::ScaleGranularity granularity, client::OpList& ops);
  // `buffer` as `dtype`: itself, or a new buffer that a Convert op fills.
  absl::StatusOr<client::Tensor> Converted(const client::Buffer& buffer, client::DType dtype,
                                           std::optional<client::Buffer>& converted,
                                           client::OpList& ops);
  // Without quantisation: A and B as they were uploaded, or with `of_files` as the files have them,
  // C and bias too.
  VerifyProblem PlainProblem(absl::Span<const std::byte> d, bool of_files) const;
  // True when the server multiplied and added just what the files hold.
  bool TookFilesAsTheyAre() const;
  // A copy on the server, row-major without gaps.
  absl::StatusOr<client::Buffer> Dense(const client::Tensor& tensor);
  // A published operand's bytes, for Check: its values and scales.
  absl::Status FetchPublished();
  absl::StatusOr<std::vector<char>> Fetch(const client::Buffer& buffer, const std::string& name);

  client::Session& session_;
  const MatmulInputs& inputs_;
  const MatmulSettings& settings_;
  const MatmulShape shape_;
  const Output& out_;
  ServerOperand a_, b_;
  std::vector<char> published_a_, published_b_;  // as Check fetched them
  client::Buffer c_, bias_, d_;
  std::optional<client::Buffer> c_converted_, bias_converted_;  // where their types did not fit
  client::TransferReport uploaded_, downloaded_;
};

}  // namespace gemmd::cli
