#include "client/cli/matmul_job.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "client/cli/load/weight.h"
#include "client/cli/progress.h"
#include "client/cli/transfers.h"
#include "client/cpp/scales.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

using client::Buffer;
using client::DType;
using client::ScaleGranularity;
using client::Tensor;

const std::byte* Bytes(const std::vector<char>& data) {
  return reinterpret_cast<const std::byte*>(data.data());
}

}  // namespace

absl::StatusOr<Buffer> MatmulJob::UploadMatrix(const files::Matrix& matrix,
                                               const std::string& name) {
  absl::StatusOr<Buffer> buffer = session_.CreateBuffer({.dtype = ToClient(matrix.dtype()),
                                                         .shape = matrix.shape(),
                                                         .label = absl::StrCat("gemmctl ", name)});
  if (!buffer.ok()) return buffer;
  client::TransferOptions options;
  options.progress = ProgressLine(out_, "uploading " + name);
  options.route = settings_.route;
  GEMMD_ASSIGN_OR_RETURN(client::TransferReport moved,
                         buffer->Upload(client::AsBytes(matrix.bytes()), 0, options));
  Accumulate(moved, uploaded_);
  return buffer;
}

absl::Status MatmulJob::Upload() {
  struct Wanted {
    const files::Matrix* matrix;
    Buffer* buffer;
    const char* name;
  };
  const Wanted all[] = {{inputs_.a.published() ? nullptr : &inputs_.a.file(), &a_.uploaded, "A"},
                        {inputs_.b.published() ? nullptr : &inputs_.b.file(), &b_.uploaded, "B"},
                        {inputs_.c ? &*inputs_.c : nullptr, &c_, "C"},
                        {inputs_.bias ? &*inputs_.bias : nullptr, &bias_, "bias"}};
  for (const Wanted& wanted : all) {
    if (wanted.matrix == nullptr) continue;
    GEMMD_ASSIGN_OR_RETURN(*wanted.buffer, UploadMatrix(*wanted.matrix, wanted.name));
  }
  a_.source = inputs_.a.published() ? inputs_.a.values() : a_.uploaded.tensor();
  b_.source = inputs_.b.published() ? inputs_.b.values() : b_.uploaded.tensor();
  return absl::OkStatus();
}

absl::Status MatmulJob::Operand(const MatmulInput& input, ServerOperand& operand,
                                const Tensor& view, ScaleGranularity granularity,
                                client::OpList& ops) {
  if (!input.scaled()) return Quantize(operand, view, granularity, ops);
  operand.operand = client::Operand(view, input.granularity(), input.scales());
  return absl::OkStatus();
}

absl::Status MatmulJob::Quantize(ServerOperand& operand, const Tensor& view,
                                 ScaleGranularity granularity, client::OpList& ops) {
  if (granularity == ScaleGranularity::kNone) {
    operand.operand = view;
    return absl::OkStatus();
  }
  const std::vector<int64_t> shape(view.shape().begin(), view.shape().end());
  GEMMD_ASSIGN_OR_RETURN(
      Buffer values, session_.CreateBuffer({.dtype = settings_.quantize.dtype, .shape = shape}));
  GEMMD_ASSIGN_OR_RETURN(
      Buffer scales, session_.CreateBuffer(
                         {.dtype = DType::kF32, .shape = client::ScalesRoom(shape, granularity)}));
  operand.values = std::move(values);
  operand.scales = std::move(scales);
  operand.operand = client::Operand(operand.values.tensor(), granularity,
                                    client::ScalesIn(operand.scales.tensor(), shape, granularity));
  ops.Add(client::Quantize{.src = view,
                           .dst = operand.operand.values,
                           .scales = operand.operand.scales,
                           .granularity = granularity});
  return absl::OkStatus();
}

absl::StatusOr<Tensor> MatmulJob::Converted(const Buffer& buffer, DType dtype,
                                            std::optional<Buffer>& converted, client::OpList& ops) {
  if (buffer.dtype() == dtype) return buffer.tensor();
  GEMMD_ASSIGN_OR_RETURN(
      converted, session_.CreateBuffer(
                     {.dtype = dtype, .shape = {buffer.shape().begin(), buffer.shape().end()}}));
  ops.Add(client::Convert{.src = buffer.tensor(), .dst = converted->tensor()});
  return converted->tensor();
}

absl::StatusOr<client::Result> MatmulJob::Run() {
  client::OpList ops;
  const Tensor b_view = settings_.nt ? b_.source : b_.source.Transposed();
  absl::Status status = Operand(inputs_.a, a_, a_.source, settings_.quantize.a, ops);
  if (status.ok()) status = Operand(inputs_.b, b_, b_view, settings_.quantize.b, ops);
  if (!status.ok()) return status;
  GEMMD_ASSIGN_OR_RETURN(
      Buffer d, session_.CreateBuffer({.dtype = settings_.out_dtype, .shape = shape_.DShape()}));
  d_ = std::move(d);
  client::Matmul matmul = {.a = a_.operand,
                           .b = b_.operand,
                           .d = d_.tensor(),
                           .alpha = settings_.alpha,
                           .beta = settings_.beta,
                           .activation = settings_.activation,
                           .kernel = settings_.kernel};
  if (inputs_.c) {
    GEMMD_ASSIGN_OR_RETURN(matmul.c, Converted(c_, settings_.out_dtype, c_converted_, ops));
  }
  if (inputs_.bias) {
    // F32 and D's own type are taken as they are.
    const DType dtype = bias_.dtype() == settings_.out_dtype ? bias_.dtype() : DType::kF32;
    GEMMD_ASSIGN_OR_RETURN(matmul.bias, Converted(bias_, dtype, bias_converted_, ops));
  }
  ops.Add(matmul);
  return session_.Execute(ops);
}

absl::Status MatmulJob::DownloadD(absl::Span<std::byte> d) {
  client::TransferOptions options;
  options.progress = ProgressLine(out_, "downloading D");
  options.route = settings_.route;
  GEMMD_ASSIGN_OR_RETURN(
      client::TransferReport moved,
      d_.Download(absl::MakeSpan(reinterpret_cast<char*>(d.data()), d.size()), 0, options));
  Accumulate(moved, downloaded_);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<char>> MatmulJob::Fetch(const Buffer& buffer, const std::string& name) {
  std::vector<char> data(buffer.size_bytes());
  client::TransferOptions options;
  options.progress = ProgressLine(out_, absl::StrCat("downloading ", name, " to check"));
  options.route = settings_.route;
  GEMMD_RETURN_IF_ERROR(buffer.Download(absl::MakeSpan(data), 0, options).status());
  return data;
}

absl::Status MatmulJob::FetchPublished() {
  struct Side {
    const MatmulInput& input;
    std::vector<char>& bytes;
    const char* name;
  };
  for (const Side& side :
       {Side{inputs_.a, published_a_, "A"}, Side{inputs_.b, published_b_, "B"}}) {
    if (!side.input.published()) continue;
    GEMMD_ASSIGN_OR_RETURN(side.bytes, Fetch(side.input.buffer(), side.name));
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> MatmulJob::Dense(const Tensor& tensor) {
  absl::StatusOr<Buffer> dense = session_.CreateBuffer(
      {.dtype = tensor.dtype(), .shape = {tensor.shape().begin(), tensor.shape().end()}});
  if (!dense.ok()) return dense;
  client::OpList ops;
  ops.Add(client::Copy{.src = tensor, .dst = dense->tensor()});
  GEMMD_RETURN_IF_ERROR(session_.Execute(ops).status());
  return dense;
}

VerifyProblem MatmulJob::PlainProblem(absl::Span<const std::byte> d, bool of_files) const {
  VerifyProblem problem = {.batch = shape_.batch,
                           .m = shape_.m,
                           .n = shape_.n,
                           .k = shape_.k,
                           .d = {ToFile(settings_.out_dtype), d.data()},
                           .alpha = settings_.alpha,
                           .beta = settings_.beta,
                           .activation = settings_.activation};
  const auto tensor = [of_files](const files::Matrix& matrix) {
    return of_files ? HostTensor{matrix.file_dtype(), matrix.file_values()}
                    : HostTensor{matrix.dtype(), matrix.bytes().data()};
  };
  // A published operand is what the server holds, both times.
  const auto operand = [&](const MatmulInput& input, const std::vector<char>& fetched,
                           int64_t rows) {
    const HostTensor values =
        input.published() ? HostTensor{input.dtype(), Bytes(fetched)} : tensor(input.file());
    HostOperand host = {.dtype = values.dtype,
                        .values = values.data,
                        .rows = rows,
                        .k = shape_.k,
                        .row_stride = shape_.k};
    if (input.scaled()) {
      host.granularity = input.granularity();
      host.scales =
          reinterpret_cast<const float*>(Bytes(fetched) + LinearScalesAt(rows * shape_.k));
    }
    return host;
  };
  problem.a = operand(inputs_.a, published_a_, shape_.m);
  problem.b = operand(inputs_.b, published_b_, shape_.n);
  if (!settings_.nt) {
    problem.b.row_stride = 1;
    problem.b.k_stride = shape_.n;
  }
  if (shape_.a_batched) problem.a.batch_stride = shape_.m * shape_.k;
  if (shape_.b_batched) problem.b.batch_stride = shape_.n * shape_.k;
  if (of_files && inputs_.c) problem.c = tensor(*inputs_.c);
  if (of_files && inputs_.bias) problem.bias = tensor(*inputs_.bias);
  return problem;
}

bool MatmulJob::TookFilesAsTheyAre() const {
  for (const files::Matrix* matrix :
       {&inputs_.a.file(), &inputs_.b.file(), inputs_.c ? &*inputs_.c : nullptr,
        inputs_.bias ? &*inputs_.bias : nullptr}) {
    if (matrix != nullptr && matrix->narrowed()) return false;
  }
  return settings_.quantize.dtype == DType::kUnspecified && !c_converted_ && !bias_converted_;
}

absl::StatusOr<Verified> MatmulJob::Check(absl::Span<const std::byte> d) {
  GEMMD_RETURN_IF_ERROR(FetchPublished());
  VerifyProblem problem = PlainProblem(d, /*of_files=*/false);
  std::vector<char> keep[6];  // what the problem points to
  int kept = 0;
  const auto fetch = [&](const Buffer& buffer,
                         const std::string& name) -> absl::StatusOr<const std::byte*> {
    GEMMD_ASSIGN_OR_RETURN(keep[kept], Fetch(buffer, name));
    return Bytes(keep[kept++]);
  };
  struct Side {
    const MatmulInput* input;
    const ServerOperand* server;
    HostOperand* host;
    ScaleGranularity granularity;
    const char* name;
  };
  for (const Side& side : {Side{&inputs_.a, &a_, &problem.a, settings_.quantize.a, "A"},
                           Side{&inputs_.b, &b_, &problem.b, settings_.quantize.b, "B"}}) {
    if (side.granularity == ScaleGranularity::kNone || side.input->scaled()) continue;
    GEMMD_ASSIGN_OR_RETURN(const std::byte* values, fetch(side.server->values, side.name));
    GEMMD_ASSIGN_OR_RETURN(Buffer dense, Dense(side.server->operand.scales));
    GEMMD_ASSIGN_OR_RETURN(const std::byte* scales,
                           fetch(dense, absl::StrCat(side.name, "'s scales")));
    side.host->dtype = ToFile(settings_.quantize.dtype);
    side.host->values = values;
    side.host->row_stride = shape_.k;  // quantised, B is always [n, k]
    side.host->k_stride = 1;
    side.host->granularity = side.granularity;
    side.host->scales = reinterpret_cast<const float*>(scales);
    if (side.host->batch_stride != 0) {
      side.host->scale_batch_stride = ScaleCount(side.host->granularity, side.host->rows, shape_.k);
    }
  }
  if (inputs_.c) {
    const Buffer& buffer = c_converted_ ? *c_converted_ : c_;
    GEMMD_ASSIGN_OR_RETURN(const std::byte* c, fetch(buffer, "C"));
    problem.c = HostTensor{ToFile(buffer.dtype()), c};
  }
  if (inputs_.bias) {
    const Buffer& buffer = bias_converted_ ? *bias_converted_ : bias_;
    GEMMD_ASSIGN_OR_RETURN(const std::byte* bias, fetch(buffer, "bias"));
    problem.bias = HostTensor{ToFile(buffer.dtype()), bias};
  }
  VerifyOptions options;
  while (options.seed == 0) options.seed = std::random_device()();  // the same rows for both
  Verified verified;
  verified.kernel = Verify(problem, options);
  verified.files =
      TookFilesAsTheyAre() ? verified.kernel : Verify(PlainProblem(d, /*of_files=*/true), options);
  return verified;
}

}  // namespace gemmd::cli
