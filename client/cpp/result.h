// What a program gave back: the bytes of its Reads and the report of what it cost.
//
//   absl::Span<const float> y = result->Output<float>(0);
//   const v1::ProgramReport& report = result->report();  // include "gemmd/v1/types.pb.h"
//   for (const v1::OpReport& op : report.ops()) Print(op.kernel(), op.device_seconds());

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace gemmd::v1 {
class ProgramReport;
}  // namespace gemmd::v1

namespace gemmd::client {

struct Reply;

// Move-only; what it hands out lives as long as it does.
class Result {
 public:
  Result();
  explicit Result(std::unique_ptr<Reply> reply);
  ~Result();
  Result(Result&&) noexcept;
  Result& operator=(Result&&) noexcept;

  int outputs() const;
  // The i-th Read's tensor, dense, row-major, little-endian; empty where `i` is none of outputs().
  // A large one has come in pieces, which the first call puts together.
  absl::string_view output(int i) const;
  size_t output_bytes(int i) const;
  template <typename T>
  absl::Span<const T> Output(int i) const {
    absl::string_view bytes = output(i);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // The same to memory of the caller's, as large as the tensor, from where it was received: spares
  // a large one a copy. OUT_OF_RANGE, INVALID_ARGUMENT for another size.
  template <typename T>
  absl::Status CopyOutput(int i, absl::Span<T> target) const {
    return CopyOutputBytes(i, {reinterpret_cast<char*>(target.data()), target.size() * sizeof(T)});
  }

  // Empty at ReportLevel::kNone.
  const v1::ProgramReport& report() const;
  // Answered from an earlier try with the same op_id: the program ran once, the first answer was
  // lost.
  bool replayed() const;

 private:
  absl::Status CopyOutputBytes(int i, absl::Span<char> target) const;

  std::unique_ptr<Reply> reply_;
};

}  // namespace gemmd::client
