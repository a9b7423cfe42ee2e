#include "client/cpp/split_linear.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/scales.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

constexpr int64_t kSplitBlock = 128;
constexpr int64_t kMostElements = int64_t{1} << 60;
constexpr ScaleGranularity kOfX = ScaleGranularity::kBlock1x128;
constexpr ScaleGranularity kOfWeight = ScaleGranularity::kBlock128x128;

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

absl::Status CheckOptions(const SplitLinearOptions& options, absl::string_view weight) {
  const auto refuse = [](auto&&... text) {
    return absl::InvalidArgumentError(absl::StrCat(text...));
  };
  if (options.devices.empty()) return refuse("devices is empty; name one at least");
  std::vector<std::string> devices = options.devices;
  std::sort(devices.begin(), devices.end());
  if (const auto twice = std::adjacent_find(devices.begin(), devices.end());
      twice != devices.end()) {
    return refuse("device ", *twice, " is named twice; name each once");
  }
  for (const DType dtype : {options.dtype, options.x_dtype, options.y_dtype}) {
    if (!IsFloat(dtype)) return refuse("dtype ", Name(dtype), "; use f32, bf16 or f16");
  }
  if (!options.quantize && options.x_dtype != options.dtype) {
    return refuse("x has dtype ", Name(options.x_dtype), ", the weight ", Name(options.dtype),
                  "; without quantize they are the same");
  }
  if (options.n <= 0 || options.k <= 0) {
    return refuse("n=", options.n, ", k=", options.k, "; both are above 0");
  }
  if (options.n > kMostElements / options.k) {
    return refuse("n=", options.n, ", k=", options.k, "; a weight has at most ", kMostElements,
                  " elements");
  }
  const auto bytes = static_cast<size_t>(options.n * options.k * SizeBytes(options.dtype));
  if (weight.size() != bytes) {
    return refuse("the weight has ", weight.size(), " bytes; [", options.n, ", ", options.k,
                  "] of ", Name(options.dtype), " has ", bytes);
  }
  if (!options.bias.empty() && options.bias.size() != static_cast<size_t>(options.n) * 4) {
    return refuse("the bias has ", options.bias.size(), " bytes; [", options.n, "] of f32 has ",
                  options.n * 4);
  }
  if (options.split == Split::kRows && options.activation != Activation::kNone) {
    return refuse(
        "an activation of a weight that is split by rows would come before the sums; apply it to "
        "y");
  }
  return absl::OkStatus();
}

// A dense sub-matrix of a row-major [.., row_bytes] in bytes.
std::string Cut(absl::string_view matrix, int64_t row_bytes, int64_t first, int64_t last,
                int64_t begin, int64_t end) {
  if (begin == 0 && end == row_bytes) {
    return std::string(matrix.substr(first * row_bytes, (last - first) * row_bytes));
  }
  std::string part(static_cast<size_t>((last - first) * (end - begin)), '\0');
  for (int64_t row = first; row < last; ++row) {
    std::memcpy(part.data() + (row - first) * (end - begin),
                matrix.data() + row * row_bytes + begin, static_cast<size_t>(end - begin));
  }
  return part;
}

// Makes buffers and notes the first failure.
class Maker {
 public:
  explicit Maker(Session& session) : session_(session) {}

  Tensor Make(const std::string& device, DType dtype, std::vector<int64_t> shape,
              std::vector<Buffer>& memory) {
    if (!status_.ok()) return {};
    auto buffer =
        session_.CreateBuffer({.dtype = dtype, .shape = std::move(shape), .device = device});
    if (!buffer.ok()) {
      status_ = buffer.status();
      return {};
    }
    memory.push_back(*std::move(buffer));
    return memory.back().tensor();
  }
  Tensor MakeOf(const std::string& device, DType dtype, std::vector<int64_t> shape,
                absl::string_view data, std::vector<Buffer>& memory) {
    const Tensor tensor = Make(device, dtype, std::move(shape), memory);
    if (status_.ok()) status_ = memory.back().Upload(data).status();
    return tensor;
  }
  const absl::Status& status() const { return status_; }

 private:
  Session& session_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::vector<int64_t>> SplitBounds(int64_t extent, int64_t parts) {
  const int64_t blocks = (extent + kSplitBlock - 1) / kSplitBlock;
  if (parts < 1 || blocks < parts) {
    return absl::InvalidArgumentError(absl::StrCat("an extent of ", extent, " has ", blocks,
                                                   " blocks of ", kSplitBlock, " for ", parts,
                                                   " devices; name fewer"));
  }
  std::vector<int64_t> bounds;
  for (int64_t i = 0; i < parts; ++i) {
    bounds.push_back(kSplitBlock * (i * (blocks / parts) + std::min(i, blocks % parts)));
  }
  bounds.push_back(extent);
  return bounds;
}

absl::StatusOr<std::unique_ptr<SplitLinear>> SplitLinear::Create(Session& session,
                                                                 const SplitLinearOptions& options,
                                                                 absl::string_view weight) {
  GEMMD_RETURN_IF_ERROR(CheckOptions(options, weight));
  const auto devices = static_cast<int64_t>(options.devices.size());
  GEMMD_ASSIGN_OR_RETURN(auto of_n, SplitBounds(options.n, devices));
  auto of_k = options.split == Split::kRows ? SplitBounds(options.k, devices)
                                            : std::vector<int64_t>{0, options.k};
  if (!of_k.ok()) return of_k.status();
  std::unique_ptr<SplitLinear> layer(new SplitLinear);
  layer->session_ = &session;
  layer->split_ = options.split;
  layer->n_ = options.n;
  layer->k_ = options.k;
  layer->quantize_ = options.quantize;
  layer->x_dtype_ = options.x_dtype;
  layer->y_dtype_ = options.y_dtype;
  layer->activation_ = options.activation;
  layer->has_bias_ = !options.bias.empty();
  for (size_t i = 0; i < options.devices.size(); ++i) {
    const size_t of = options.split == Split::kRows ? i : 0;
    GEMMD_RETURN_IF_ERROR(layer->AddPart(options, weight,
                                         {.device = options.devices[i],
                                          .n_begin = of_n[i],
                                          .n_end = of_n[i + 1],
                                          .k_begin = (*of_k)[of],
                                          .k_end = (*of_k)[of + 1]}));
  }
  return layer;
}

absl::Status SplitLinear::AddPart(const SplitLinearOptions& options, absl::string_view weight,
                                  Part part) {
  const int64_t size = SizeBytes(options.dtype);
  const int64_t first = split_ == Split::kColumns ? part.n_begin : 0;
  const int64_t last = split_ == Split::kColumns ? part.n_end : n_;
  const std::vector<int64_t> shape = {last - first, part.k_end - part.k_begin};
  Maker maker(*session_);
  std::vector<Buffer> made;
  maker.MakeOf(part.device, options.dtype, shape,
               Cut(weight, k_ * size, first, last, part.k_begin * size, part.k_end * size), made);
  if (quantize_) {
    const Tensor values = maker.Make(part.device, DType::kE4M3, shape, made);
    const Tensor scales = maker.Make(part.device, DType::kF32, ScalesRoom(shape, kOfWeight), made);
    if (!maker.status().ok()) return maker.status();
    OpList ops;
    ops.Add(Quantize{made[0].tensor(), values, ScalesIn(scales, shape, kOfWeight), kOfWeight});
    GEMMD_RETURN_IF_ERROR(session_->Execute(ops).status());
    part.scales = std::move(made[2]);
    part.weight = std::move(made[1]);
    GEMMD_RETURN_IF_ERROR(made[0].Delete());
  } else if (maker.status().ok()) {
    part.weight = std::move(made[0]);
  }
  if (!options.bias.empty()) {
    std::vector<Buffer> bias;
    maker.MakeOf(part.device, DType::kF32, {part.n_end - part.n_begin},
                 options.bias.substr(part.n_begin * 4, (part.n_end - part.n_begin) * 4), bias);
    if (maker.status().ok()) part.bias = std::move(bias[0]);
  }
  parts_.push_back(std::move(part));
  return maker.status();
}

Operand SplitLinear::WeightFor(int at, int64_t begin, int64_t end) const {
  const Part& part = parts_[at];
  if (split_ == Split::kColumns) begin -= part.n_begin, end -= part.n_begin;
  const Tensor values = part.weight.tensor().Slice(0, begin, end - begin);
  if (!quantize_) return Operand(values);
  const int64_t first = begin / kSplitBlock;
  const int64_t blocks = (end + kSplitBlock - 1) / kSplitBlock - first;
  const Tensor scales = ScalesIn(part.scales.tensor(), part.weight.shape(), kOfWeight);
  return Operand(values, kOfWeight, scales.Slice(0, first, blocks));
}

absl::StatusOr<SplitBatch> SplitLinear::Prepare(int64_t m) const {
  if (m <= 0) return absl::InvalidArgumentError(absl::StrCat("m=", m, "; it is above 0"));
  SplitBatch batch;
  batch.layer_ = this;
  batch.m_ = m;
  Maker maker(*session_);
  const bool sums = split_ == Split::kRows && devices() > 1;
  for (const Part& part : parts_) {
    SplitBatch::Place place;
    const std::string& device = part.device;
    const std::vector<int64_t> of_x = {m, part.k_end - part.k_begin};
    const int64_t columns = part.n_end - part.n_begin;
    place.x = maker.Make(device, x_dtype_, of_x, place.memory);
    place.y = maker.Make(device, y_dtype_, {m, columns}, place.memory);
    place.a = Operand(place.x);
    if (quantize_) {
      const Tensor values = maker.Make(device, DType::kE4M3, of_x, place.memory);
      const Tensor room = maker.Make(device, DType::kF32, ScalesRoom(of_x, kOfX), place.memory);
      if (maker.status().ok()) place.a = Operand(values, kOfX, ScalesIn(room, of_x, kOfX));
    }
    if (sums && maker.status().ok()) {  // the server has taken m, so there is memory for these
      std::vector<int32_t> positions;
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t i = 0; i < devices(); ++i) {
          positions.push_back(static_cast<int32_t>(i * m + row));
        }
      }
      const std::vector<float> ones(positions.size(), 1.0f);
      place.sums = maker.Make(device, y_dtype_, {devices() * m, columns}, place.memory);
      place.positions = maker.MakeOf(device, DType::kI32, {m, devices()},
                                     AsBytes(absl::MakeConstSpan(positions)), place.memory);
      place.weights = maker.MakeOf(device, DType::kF32, {m, devices()},
                                   AsBytes(absl::MakeConstSpan(ones)), place.memory);
    }
    batch.places_.push_back(std::move(place));
  }
  if (!maker.status().ok()) return maker.status();
  return batch;
}

void SplitBatch::AddQuantize(OpList& ops) const {
  if (!layer_->quantize_) return;
  for (const Place& place : places_) {
    ops.Add(Quantize{place.x, place.a.values, place.a.scales, kOfX});
  }
}

// A product that another device sums is stored there, and so travels while it is computed. Those
// come first: by the end of a device's own product the others' have arrived.
void SplitBatch::AddProduct(OpList& ops) const {
  const int devices = layer_->devices();
  const bool sums = layer_->split_ == Split::kRows && devices > 1;
  const auto add = [&](int at, int owner) {
    const SplitLinear::Part& part = layer_->parts_[owner];
    const Place& there = places_[owner];
    ops.Add(Matmul{.a = places_[at].a,
                   .b = layer_->WeightFor(at, part.n_begin, part.n_end),
                   .d = sums ? there.sums.Slice(0, at * m_, m_) : there.y,
                   .bias = at == owner && layer_->has_bias_ ? part.bias.tensor() : Tensor(),
                   .activation = layer_->activation_});
  };
  for (int step = sums ? 1 : devices; step <= devices; ++step) {
    for (int at = 0; at < devices; ++at) add(at, (at + step) % devices);
  }
  if (!sums) return;
  for (const Place& place : places_) {
    ops.Add(Combine{place.sums, place.positions, place.weights, place.y});
  }
}

std::string SplitBatch::Columns(absl::string_view x, int64_t begin, int64_t end) const {
  const int64_t size = SizeBytes(layer_->x_dtype_);
  return Cut(x, layer_->k_ * size, 0, m_, begin * size, end * size);
}

absl::Status SplitBatch::MakePlan() {
  OpList ops;
  const bool rows = layer_->split_ == Split::kRows;
  for (size_t at = 0; at < places_.size(); ++at) {
    const Tensor& x = places_[at].x;
    if (rows || at == 0) {
      ops.Add(Write{x, std::string(static_cast<size_t>(x.dense_bytes()), '\0')});
    } else {
      ops.Add(Copy{places_[0].x, x});
    }
  }
  AddQuantize(ops);
  AddProduct(ops);
  for (const Place& place : places_) ops.Add(Read{place.y});
  GEMMD_ASSIGN_OR_RETURN(auto plan, layer_->session_->CreatePlan(ops, {.label = "split linear"}));
  plan_ = std::make_unique<Plan>(std::move(plan));
  return absl::OkStatus();
}

absl::Status SplitBatch::CheckX(absl::string_view x) const {
  const int64_t bytes = m_ * layer_->k_ * SizeBytes(layer_->x_dtype_);
  if (x.size() == static_cast<size_t>(bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("x has ", x.size(), " bytes; [", m_, ", ",
                                                 layer_->k_, "] of ", Name(layer_->x_dtype_),
                                                 " has ", bytes));
}

void SplitBatch::PutColumns(int at, absl::string_view part, std::string& y) const {
  const int64_t size = SizeBytes(layer_->y_dtype_);
  const int64_t begin = layer_->parts_[at].n_begin * size;
  const int64_t bytes = layer_->parts_[at].n_end * size - begin;
  y.resize(static_cast<size_t>(m_ * layer_->n_ * size));
  for (int64_t row = 0; row < m_; ++row) {
    std::memcpy(y.data() + row * layer_->n_ * size + begin, part.data() + row * bytes,
                static_cast<size_t>(bytes));
  }
}

absl::Status SplitBatch::Load(absl::string_view x) {
  GEMMD_RETURN_IF_ERROR(CheckX(x));
  for (int at = 0; at < layer_->devices(); ++at) {
    const SplitLinear::Part& part = layer_->parts_[at];
    GEMMD_RETURN_IF_ERROR(
        places_[at].memory[0].Upload(Columns(x, part.k_begin, part.k_end)).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SplitBatch::Fetch() const {
  std::string y;
  for (int at = 0; at < layer_->devices(); ++at) {
    std::string part(static_cast<size_t>(places_[at].y.dense_bytes()), '\0');
    GEMMD_RETURN_IF_ERROR(places_[at].memory[1].Download(absl::MakeSpan(part)).status());
    PutColumns(at, part, y);
  }
  return y;
}

absl::StatusOr<SplitBatch::Output> SplitBatch::Run(absl::string_view x) {
  GEMMD_RETURN_IF_ERROR(CheckX(x));
  if (plan_ == nullptr) GEMMD_RETURN_IF_ERROR(MakePlan());
  std::vector<std::string> parts;
  PlanArgs args = {.inputs = {x}};
  if (layer_->split_ == Split::kRows) {
    for (const SplitLinear::Part& part : layer_->parts_) {
      parts.push_back(Columns(x, part.k_begin, part.k_end));
    }
    args.inputs.assign(parts.begin(), parts.end());
  }
  GEMMD_ASSIGN_OR_RETURN(auto result, plan_->Run(args));
  Output output;
  for (int at = 0; at < layer_->devices(); ++at) PutColumns(at, result.output(at), output.y);
  output.result = std::move(result);
  return output;
}

}  // namespace gemmd::client
