#include "client/cpp/result.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/calls/reply.h"

namespace gemmd::client {

Result::Result() = default;
Result::Result(std::unique_ptr<Reply> reply) : reply_(std::move(reply)) {}
Result::~Result() = default;
Result::Result(Result&&) noexcept = default;
Result& Result::operator=(Result&&) noexcept = default;

int Result::outputs() const { return reply_ ? static_cast<int>(reply_->outputs.size()) : 0; }

absl::string_view Result::output(int i) const {
  return i >= 0 && i < outputs() ? reply_->outputs[i].View() : absl::string_view();
}

size_t Result::output_bytes(int i) const {
  return i >= 0 && i < outputs() ? reply_->outputs[i].size() : 0;
}

absl::Status Result::CopyOutputBytes(int i, absl::Span<char> target) const {
  if (i < 0 || i >= outputs()) {
    return absl::OutOfRangeError(
        absl::StrCat("output ", i, " of ", outputs(), "; a program has one for each of its Reads"));
  }
  const ReplyBytes& output = reply_->outputs[i];
  if (target.size() != output.size()) {
    return absl::InvalidArgumentError(absl::StrCat("output ", i, " has ", output.size(),
                                                   " bytes, the target ", target.size(),
                                                   "; give it memory of the tensor's size"));
  }
  output.CopyTo(target.data());
  return absl::OkStatus();
}

const v1::ProgramReport& Result::report() const {
  return reply_ ? reply_->Report() : v1::ProgramReport::default_instance();
}

bool Result::replayed() const { return reply_ && reply_->replayed; }

}  // namespace gemmd::client
