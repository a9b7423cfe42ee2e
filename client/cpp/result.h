// What a program gave back: the bytes of its Reads and the report of what it cost.
//
//   absl::Span<const float> y = result->Output<float>(0);
//   const v1::ProgramReport& report = result->report();  // include "gemmd/v1/types.pb.h"
//   for (const v1::OpReport& op : report.ops()) Print(op.kernel(), op.device_seconds());

#ifndef GEMMD_CLIENT_CPP_RESULT_H_
#define GEMMD_CLIENT_CPP_RESULT_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace gemmd::v1 {
class ExecuteResponse;
class ProgramReport;
}  // namespace gemmd::v1

namespace gemmd::client {

// Move-only; what it hands out lives as long as it does.
class Result {
 public:
  Result();
  explicit Result(std::unique_ptr<v1::ExecuteResponse> response);
  ~Result();
  Result(Result&&) noexcept;
  Result& operator=(Result&&) noexcept;

  int outputs() const;
  // The i-th Read's tensor, dense, row-major, little-endian. `i` must be below outputs().
  absl::string_view output(int i) const;
  template <typename T>
  absl::Span<const T> Output(int i) const {
    absl::string_view bytes = output(i);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // Empty at ReportLevel::kNone.
  const v1::ProgramReport& report() const;
  // Answered from an earlier try with the same op_id: the program ran once, the first answer was
  // lost.
  bool replayed() const;

 private:
  std::unique_ptr<v1::ExecuteResponse> response_;
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CPP_RESULT_H_
