#include "server/engine/scheduling/split_program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/engine/scheduling/placement.h"
#include "server/engine/sessions/host_bytes.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

using kernels::Op;

// A copy from another device goes beside what its own device computes, once it takes longer than a
// part of its own costs the host: 10 us by NVLink, and about 20 for a part.
constexpr int64_t kLeastBytesForACopy = 4 << 20;

// Of each op, as LanesOf counts them.
struct OpPlace {
  Device* device = nullptr;
  Lane* lane = nullptr;
  Peers peers;
};

absl::StatusOr<OpPlace> PlaceOp(absl::Span<const Op> ops, size_t index, const SlotTable& slots) {
  GEMMD_ASSIGN_OR_RETURN(auto placed, PlaceOne(ops[index], index, slots));
  const bool beside = !placed.peers.empty() &&
                      std::holds_alternative<kernels::CopyOp>(ops[index]) &&
                      kernels::Bytes(ops[index]) >= 2.0 * kLeastBytesForACopy;
  return OpPlace{placed.device, beside ? &placed.device->transfers() : &placed.device->lane(),
                 std::move(placed.peers)};
}

// Where the ops of a program run: an OpPlace for each, and the lanes that these are of.
struct Places {
  std::vector<OpPlace> ops;
  std::vector<int> lane_of;  // by op, into `lanes`
  std::vector<Lane*> lanes;
  std::vector<bool> marks;  // by lane
};

absl::StatusOr<Places> PlaceOps(absl::Span<const Op> ops, const SlotTable& slots) {
  Places places;
  places.ops.reserve(ops.size());
  places.lane_of.reserve(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    GEMMD_ASSIGN_OR_RETURN(auto place, PlaceOp(ops, i, slots));
    const auto found = std::find(places.lanes.begin(), places.lanes.end(), place.lane);
    places.lane_of.push_back(static_cast<int>(found - places.lanes.begin()));
    if (found == places.lanes.end()) {
      places.lanes.push_back(place.lane);
      places.marks.push_back(place.device->backend().makes_marks());
    }
    places.ops.push_back(std::move(place));
  }
  return places;
}

// The part that runs `run`, compiled.
absl::StatusOr<SplitProgram::Part> CompilePart(Tenant& tenant, absl::Span<const Op> ops,
                                               const Places& places, OpRun run) {
  SplitProgram::Part part{.device = places.ops[run.ops.front()].device,
                          .lane = places.lanes[run.lane]};
  std::vector<Op> own;
  own.reserve(run.ops.size());
  for (const int op : run.ops) {
    own.push_back(ops[op]);
    for (const kernels::Backend* peer : places.ops[op].peers) {
      if (std::find(part.peers.begin(), part.peers.end(), peer) == part.peers.end()) {
        part.peers.push_back(peer);
      }
    }
  }
  GEMMD_ASSIGN_OR_RETURN(auto program, part.device->backend().Compile(own));
  GEMMD_ASSIGN_OR_RETURN(part.program, ChargedProgram(tenant, std::move(program)));
  part.ops = std::move(run.ops);
  part.awaited = std::move(run.awaited);
  part.after = std::move(run.after);
  return part;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SplitProgram>> SplitProgram::Compile(Tenant& tenant,
                                                                          absl::Span<const Op> ops,
                                                                          const SlotTable& slots) {
  GEMMD_ASSIGN_OR_RETURN(auto places, PlaceOps(ops, slots));
  std::vector<OpRun> runs = CutIntoParts(ops, places.lane_of, places.marks);
  if (runs.size() > kMostParts) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program's devices would have to wait for each other so often that it "
                     "has ",
                     runs.size(), " parts, limit ", kMostParts, "; send it as several programs"));
  }
  auto split = std::make_shared<SplitProgram>();
  split->devices_.reserve(ops.size());
  for (const OpPlace& place : places.ops) split->devices_.push_back(place.device);
  split->steps_.resize(ops.size());
  for (OpRun& run : runs) {
    GEMMD_ASSIGN_OR_RETURN(auto part, CompilePart(tenant, ops, places, std::move(run)));
    for (size_t i = 0; i < part.ops.size(); ++i) {
      split->steps_[part.ops[i]] = part.program->steps()[i];
    }
    split->estimated_seconds_ += part.program->estimated_seconds();
    split->parts_.push_back(std::move(part));
  }
  return std::shared_ptr<const SplitProgram>(std::move(split));
}

std::string SplitProgram::DeviceNames() const {
  std::vector<std::string> names;
  for (const Device* device : devices_) {
    if (std::find(names.begin(), names.end(), device->name()) == names.end()) {
      names.push_back(device->name());
    }
  }
  return absl::StrJoin(names, ",");
}

}  // namespace gemmd::server
