#include "client/cpp/result.h"

#include <utility>

#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {

Result::Result() = default;
Result::Result(std::unique_ptr<v1::ExecuteResponse> response) : response_(std::move(response)) {}
Result::~Result() = default;
Result::Result(Result&&) noexcept = default;
Result& Result::operator=(Result&&) noexcept = default;

int Result::outputs() const { return response_ ? response_->outputs_size() : 0; }

absl::string_view Result::output(int i) const { return response_->outputs(i); }

const v1::ProgramReport& Result::report() const {
  return response_ ? response_->report() : v1::ProgramReport::default_instance();
}

bool Result::replayed() const { return response_ && response_->replayed(); }

}  // namespace gemmd::client
