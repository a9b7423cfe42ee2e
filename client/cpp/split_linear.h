// SplitLinear: y = x . weight^T + bias, the weight in parts on several devices of one daemon. Each
// call is one program with one report, whose ops run on all of them at once.
//
//   auto layer = SplitLinear::Create(session, {.split = Split::kColumns,
//                                              .devices = {"cuda:0", "cuda:1"},
//                                              .n = n, .k = k}, AsBytes(weight));
//   auto batch = (*layer)->Prepare(512);               // memory for 512 rows
//   auto result = batch->Run(AsBytes(x));              // [512, k] in, [512, n] out
//
// Between products that stay on the devices a caller makes its own program:
//
//   batch->Load(AsBytes(x));                           // or whatever writes batch->x(at)
//   OpList ops;
//   batch->AddQuantize(ops);
//   batch->AddProduct(ops);                            // batch->y(at) on each device
//   session.Execute(ops);
//
//   split      a device has of the weight   of x       of y       exchanged, bytes a device
//   kColumns   n/D rows of n                all of it  n/D cols   none; Run copies x to each once
//   kRows      n rows, k/D of k             k/D cols   n/D cols   (D-1)/D of its sums, m x n of y's
//                                                                 type
//
// kRows is for x that lies in parts already, as the y of a kColumns layer does, and for n at most
// k: what it exchanges grows with n, what it saves with n times k.
//
// Parts are whole blocks of 128, so with a remainder the first devices have a block more. Sums of
// kRows are rounded to y's type once on each device, then added in the devices' order: runs on the
// same data give the same bits.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/ops.h"
#include "client/cpp/result.h"
#include "client/cpp/session.h"
#include "client/cpp/types.h"

namespace gemmd::client {

enum class Split { kColumns, kRows };

// Where part i of `extent` begins, for each of `parts`, and its end behind the last: multiples of
// 128 but for the end. INVALID_ARGUMENT when there are fewer blocks of 128 than parts.
absl::StatusOr<std::vector<int64_t>> SplitBounds(int64_t extent, int64_t parts);

struct SplitLinearOptions {
  Split split = Split::kColumns;
  std::vector<std::string> devices = {};  // different ones of the daemon; one does, too
  int64_t n = 0, k = 0;                   // of the weight, [n, k]
  DType dtype = DType::kF32;              // of the weight as given: F32, BF16 or F16
  // FP8 with scales of 128x128, and x with 1x128 in each call; else the weight's own type, and x's
  // is the same.
  bool quantize = true;
  DType x_dtype = DType::kF32;                // F32, BF16 or F16
  DType y_dtype = DType::kF32;                // likewise
  absl::string_view bias = {};                // F32 [n], dense; valid during Create. Empty: none
  Activation activation = Activation::kNone;  // kColumns alone: sums of kRows come later
};

class SplitBatch;

// Goes before its session; its batches go before it. Thread-safe.
class SplitLinear {
 public:
  // `weight` is dense and row-major. INVALID_ARGUMENT for options that do not fit; else as
  // Session::CreateBuffer.
  static absl::StatusOr<std::unique_ptr<SplitLinear>> Create(Session& session,
                                                             const SplitLinearOptions& options,
                                                             absl::string_view weight);
  SplitLinear(const SplitLinear&) = delete;
  SplitLinear& operator=(const SplitLinear&) = delete;

  // Memory on every device for m rows, and nothing more. One run at a time.
  absl::StatusOr<SplitBatch> Prepare(int64_t m) const;

  int devices() const { return static_cast<int>(parts_.size()); }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }

 private:
  friend class SplitBatch;
  SplitLinear() = default;
  struct Part {
    std::string device;
    int64_t n_begin = 0, n_end = 0;  // of y that ends up here
    int64_t k_begin = 0, k_end = 0;  // of x that is needed here
    Buffer weight, scales, bias;
  };

  absl::Status AddPart(const SplitLinearOptions& options, absl::string_view weight, Part part);
  // Rows [begin, end) of y's columns, as device `at` has the weight for them.
  Operand WeightFor(int at, int64_t begin, int64_t end) const;

  Session* session_ = nullptr;
  Split split_ = Split::kColumns;
  int64_t n_ = 0, k_ = 0;
  bool quantize_ = true;
  bool has_bias_ = false;
  DType x_dtype_ = DType::kF32, y_dtype_ = DType::kF32;
  Activation activation_ = Activation::kNone;
  std::vector<Part> parts_;
};

// Move-only. One call at a time.
class SplitBatch {
 public:
  // What device `at` reads and writes. x: [m, k] for kColumns, its columns of it for kRows; of the
  // options' x_dtype. y: [m, its columns of n].
  const Tensor& x(int at) const { return place(at).x; }
  const Tensor& y(int at) const { return place(at).y; }

  // x to FP8, on each device what it has of it. Nothing for a weight that is not quantised.
  void AddQuantize(OpList& ops) const;
  // The product of that, and for kRows the exchange and the sums.
  void AddProduct(OpList& ops) const;

  struct Output {
    std::string y;  // [m, n], dense
    Result result;  // with the report of the whole
  };
  // x: [m, k], dense. INVALID_ARGUMENT for another size; else as Plan::Run. x and y travel in the
  // call, which bounds them: RESOURCE_EXHAUSTED (INLINE_LIMIT) above limits.max_inline_bytes. There
  // and for what is on the devices already: Load, a program of the caller's, Fetch.
  absl::StatusOr<Output> Run(absl::string_view x);

  // x, [m, k], to x(at) of every device, by uploads. y, [m, n], from y(at), by downloads.
  absl::Status Load(absl::string_view x);
  absl::StatusOr<std::string> Fetch() const;

 private:
  friend class SplitLinear;
  struct Place {
    std::vector<Buffer> memory;  // what the tensors lie in: x's, y's, the others'
    Tensor x, y;
    Operand a;    // x as the product takes it
    Tensor sums;  // kRows: [D * m, columns of y]: every device's, which it stores here
    Tensor positions, weights;  // of Combine
  };

  const Place& place(int at) const { return places_[static_cast<size_t>(at)]; }
  absl::Status MakePlan();
  absl::Status CheckX(absl::string_view x) const;
  // Puts a device's columns of y where they belong in [m, n].
  void PutColumns(int at, absl::string_view part, std::string& y) const;
  // Bytes of columns [begin, end) of x.
  std::string Columns(absl::string_view x, int64_t begin, int64_t end) const;

  const SplitLinear* layer_ = nullptr;
  int64_t m_ = 0;
  std::vector<Place> places_;
  std::unique_ptr<Plan> plan_;  // of the first Run
};

}  // namespace gemmd::client
