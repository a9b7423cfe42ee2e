#include "server/engine/share/shared_inline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/device.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::Status AtPlace(size_t index, const absl::Status& status) {
  return WithReason(
      absl::Status(status.code(), absl::StrCat("inline_at[", index, "]: ", status.message())),
      ReasonOf(status));
}

absl::Status CheckPlace(const SharedInline::Move& move, const Device& device,
                        const SharedBytes& place, const BufferRef& ref) {
  const Buffer& buffer = *ref.buffer;
  if (&buffer.device() != &device) {
    return WithReason(absl::InvalidArgumentError(absl::StrCat(
                          "buffer ", Redacted(place.buffer), "... is on ", buffer.device().name(),
                          ", the plan runs on ", device.name(), "; name memory of that device")),
                      reason::kOtherDevice);
  }
  GEMMD_RETURN_IF_ERROR(CheckShared(ref, place.offset_bytes, move.element_bytes, move.is_read));
  const int64_t size = buffer.spec().size_bytes;
  if (place.offset_bytes <= size && move.bytes <= size - place.offset_bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the op moves ", move.bytes, " bytes and offset_bytes=", place.offset_bytes,
                   " leaves ", std::max<int64_t>(size - place.offset_bytes, 0), " of the buffer's ",
                   size, "; place it lower or share a larger buffer"));
}

// Of what a Read writes, and what any other op moves.
absl::Status CheckApart(const SharedInline& shared, absl::Span<const SharedBytes> places,
                        absl::Span<const BufferRef> refs) {
  struct Range {
    const Buffer* buffer;
    int64_t begin, end;
    bool written;
  };
  std::vector<Range> ranges;
  for (size_t i = 0; i < places.size(); ++i) {
    if (shared.moves[i].bytes == 0) continue;
    const int64_t begin = places[i].offset_bytes;
    ranges.push_back(
        {refs[i].buffer.get(), begin, begin + shared.moves[i].bytes, shared.moves[i].is_read});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::pair(a.buffer, a.begin) < std::pair(b.buffer, b.begin);
  });
  // The furthest end so far, of all and of those written, in the same buffer.
  int64_t any_end = 0, written_end = 0;
  const Buffer* buffer = nullptr;
  for (const Range& range : ranges) {
    if (range.buffer != buffer) any_end = written_end = 0;
    buffer = range.buffer;
    if (range.begin < (range.written ? any_end : written_end)) {
      return absl::InvalidArgumentError(
          absl::StrCat("inline_at: a Read's bytes at offset_bytes=", range.begin,
                       " overlap another op's; give each a place of its own"));
    }
    any_end = std::max(any_end, range.end);
    if (range.written) written_end = std::max(written_end, range.end);
  }
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<std::vector<std::string_view>> NamesOf(absl::Span<const kernels::Op> ops) {
  auto names = std::make_shared<std::vector<std::string_view>>();
  names->reserve(ops.size());
  for (const kernels::Op& op : ops) names->push_back(kernels::Name(op));
  return names;
}

absl::Status CheckShared(const BufferRef& ref, int64_t offset_bytes, int element_bytes,
                         bool written) {
  if (ref.buffer->spec().kind != kernels::MemoryKind::kHostShared) {
    return absl::InvalidArgumentError(
        "the buffer is not of MEMORY_KIND_HOST_SHARED; create or import one for inline data");
  }
  if (offset_bytes < 0 || offset_bytes % element_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("offset_bytes=", offset_bytes,
                                                   " is not a multiple of the ", element_bytes,
                                                   "-byte element; align it"));
  }
  if (written && ref.read_only()) {
    return WithReason(absl::FailedPreconditionError(
                          "the buffer is published and so read-only, and a Read writes it; name "
                          "another"),
                      reason::kReadOnly);
  }
  return absl::OkStatus();
}

LoweredInline LowerInline(absl::Span<const kernels::Op> ops, int first_slot) {
  LoweredInline lowered;
  lowered.ops.reserve(ops.size());
  for (const kernels::Op& op : ops) {
    const auto* write = std::get_if<kernels::WriteOp>(&op);
    const auto* read = std::get_if<kernels::ReadOp>(&op);
    if (write == nullptr && read == nullptr) {
      lowered.ops.push_back(op);
      continue;
    }
    const kernels::TensorRef& tensor = write != nullptr ? write->dst : read->src;
    const kernels::TensorRef dense = {.slot = first_slot + static_cast<int>(lowered.moves.size()),
                                      .dtype = tensor.dtype,
                                      .shape = tensor.shape,
                                      .strides = kernels::RowMajorStrides(tensor.shape)};
    lowered.ops.push_back(write != nullptr ? kernels::CopyOp{dense, tensor}
                                           : kernels::CopyOp{tensor, dense});
    const int element_bytes = kernels::SizeBytes(tensor.dtype);
    lowered.moves.push_back({.is_read = read != nullptr,
                             .element_bytes = element_bytes,
                             .bytes = *kernels::NumElements(tensor.shape) * element_bytes});
  }
  return lowered;
}

absl::StatusOr<std::shared_ptr<const BoundBuffers>> BindShared(const SharedInline& shared,
                                                               const BoundBuffers& plans,
                                                               const Device& device,
                                                               absl::Span<const SharedBytes> places,
                                                               absl::Span<const BufferRef> refs) {
  auto bound = std::make_shared<BoundBuffers>();
  bound->Reserve(plans.leases.size() + places.size());
  bound->leases = plans.leases;
  bound->addresses = plans.addresses;
  bound->written = plans.written;
  for (size_t i = 0; i < places.size(); ++i) {
    if (absl::Status fits = CheckPlace(shared.moves[i], device, places[i], refs[i]); !fits.ok()) {
      return AtPlace(i, fits);
    }
    if (std::find(plans.leases.begin(), plans.leases.end(), refs[i].buffer) != plans.leases.end()) {
      return AtPlace(i, absl::InvalidArgumentError(absl::StrCat(
                            "buffer ", Redacted(places[i].buffer),
                            "... is one that the plan runs on; name memory of another")));
    }
    bound->Add(refs[i].buffer);
    bound->addresses.back() += places[i].offset_bytes;
  }
  GEMMD_RETURN_IF_ERROR(CheckApart(shared, places, refs));
  return std::shared_ptr<const BoundBuffers>(std::move(bound));
}

}  // namespace gemmd::server
