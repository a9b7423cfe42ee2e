#include "server/service/compute/prepare.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "gemmd/v1/wire.h"
#include "prometheus/counter.h"
#include "server/engine/observe/label.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

kernels::HostBytes BytesOf(std::string_view data) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data.data()), data.size());
}

// Ranges of bytes that lie in several runs, asked for in order.
class RangeReader {
 public:
  explicit RangeReader(const kernels::HostBytes& bytes) : runs_(bytes.runs()) {}

  // The next `size` bytes from `offset` of all, which is not before the last range's.
  std::string_view Read(size_t offset, size_t size, char* target) {
    while (offset >= before_ + runs_.front().size()) {
      before_ += runs_.front().size();
      runs_.remove_prefix(1);
    }
    size_t at = offset - before_;
    size_t read = 0;
    for (size_t run = 0; read < size; ++run, at = 0) {
      const size_t part = std::min(size - read, runs_[run].size() - at);
      std::memcpy(target + read, runs_[run].data() + at, part);
      read += part;
    }
    return {target, size};
  }

 private:
  absl::Span<const kernels::HostBytes::Run> runs_;
  size_t before_ = 0;  // bytes of runs that are left behind
};

// What a request is to run, as a number: requests are compared by it, and only within a session.
// Two that are not the same agree when their long data differs in a few places alone, which the
// client that gave them one op_id is told of in docs/api.md.
class Digest {
 public:
  void Add(const google::protobuf::MessageLite& message) {
    bytes_.clear();
    message.AppendToString(&bytes_);
    AddBytes(bytes_);
  }
  void AddBytes(std::string_view bytes) { value_ = absl::HashOf(value_, bytes); }
  // Its length, both ends and samples of the rest, however it lies: going through all of a matrix
  // takes as long as copying it.
  void AddData(const kernels::HostBytes& data) {
    value_ = absl::HashOf(value_, data.size());
    if (data.size() == 0) return;
    char part[2 * kEnd];
    RangeReader reader(data);
    if (data.size() <= sizeof(part)) return AddBytes(reader.Read(0, data.size(), part));
    AddBytes(reader.Read(0, kEnd, part));
    const size_t last = data.size() - kEnd;
    for (size_t i = 1; i < kSamples; ++i) {
      AddBytes(reader.Read(std::min(data.size() / kSamples * i, last), kSample, part));
    }
    AddBytes(reader.Read(last, kEnd, part));
  }
  uint64_t value() const { return value_; }

 private:
  static constexpr size_t kEnd = 1024;
  static constexpr size_t kSamples = 64;
  static constexpr size_t kSample = 32;

  uint64_t value_ = 0;
  std::string bytes_;
};

void AddTo(Digest& digest, const v1::Op& op) {
  if (!op.has_write()) return digest.Add(op);
  digest.Add(op.write().dst());
  if (op.write().has_from()) digest.Add(op.write().from());
  digest.AddData(BytesOf(op.write().data()));
}

void AddTo(Digest& digest, const v1::PlanRun& run) {
  digest.AddBytes(run.plan_id());
  for (const v1::Rebinding& change : run.rebind()) digest.Add(change);
  for (const std::string& input : run.inputs()) digest.AddData(BytesOf(input));
  for (const v1::SharedBytes& place : run.inline_at()) digest.Add(place);
}

absl::Status CheckOpId(std::string_view id) {
  constexpr size_t kMost = 32;
  if (id.size() <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("op_id has ", id.size(), " bytes, limit ", kMost, "; 16 random bytes do"));
}

// `add` adds what the request is to run, but for its data that was taken out.
absl::StatusOr<OpId> MakeOpId(std::string_view id, const InlineData* taken,
                              absl::FunctionRef<void(Digest&)> add) {
  GEMMD_RETURN_IF_ERROR(CheckOpId(id));
  OpId op_id{.id = std::string(id)};
  if (id.empty()) return op_id;
  Digest digest;
  add(digest);
  if (taken != nullptr) {
    for (const kernels::HostBytes& data : taken->data) digest.AddData(data);
  }
  op_id.program_digest = digest.value();
  return op_id;
}

// Until the run is answered.
void Keep(std::shared_ptr<InlineData> taken, RunRequest& run) {
  if (taken == nullptr) return;
  run.message_bytes = static_cast<int64_t>(taken->rest.size());
  run.message = std::move(taken);
}

void Pin(std::vector<kernels::Op>& ops) {
  for (kernels::Op& op : ops) {
    if (auto* matmul = std::get_if<kernels::MatmulOp>(&op)) matmul->deterministic = true;
  }
}

// `then` sees what was compiled.
absl::StatusOr<RunRequest> CompileOps(
    SessionUse use, const OpList& ops, std::shared_ptr<InlineData> taken, Kernels kernels,
    absl::FunctionRef<void(const RunRequest&, absl::Span<const kernels::Op>, const SlotTable&)>
        then) {
  SlotTable slots(*use);
  auto converted = ConvertOps(ops, use->tenant().limits().max_ops, slots,
                              taken != nullptr ? &taken->data : nullptr);
  if (!converted.ok()) return converted.status();
  if (kernels == Kernels::kShipped) Pin(converted->ops);
  GEMMD_ASSIGN_OR_RETURN(
      auto run, CompileRun(std::move(use), converted->ops, slots, std::move(converted->inputs)));
  run.op_names = std::move(converted->names);
  then(run, converted->ops, slots);
  Keep(std::move(taken), run);
  return run;
}

// What the session knows by these bytes, as a run. Nothing if it does not, or if the plan cannot
// run any more: to compile the ops says what is wrong, and where.
std::optional<RunRequest> RunKept(SessionUse& use, std::string_view ops,
                                  std::shared_ptr<InlineData>& taken) {
  const auto plan = use->programs().Find(ops);
  if (plan == nullptr || plan->tuning != plan->device->tuning()) return std::nullopt;
  Inputs none;
  auto run = RunAgain(use, *plan, taken != nullptr ? taken->data : none);
  if (!run.ok()) return std::nullopt;
  Keep(std::move(taken), *run);
  return *std::move(run);
}

// The other way: `bytes` are the ops'.
absl::StatusOr<RunRequest> CompileToKeep(SessionUse use, std::string_view bytes, const OpList& ops,
                                         std::shared_ptr<InlineData> taken) {
  RecentPrograms& programs = use->programs();
  const auto keep = [&](const RunRequest& run, absl::Span<const kernels::Op> converted,
                        const SlotTable& slots) {
    if (!programs.ComeAgain(bytes)) return;
    if (auto plan = PlanOf(run, converted, slots)) programs.Keep(bytes, std::move(plan));
  };
  return CompileOps(std::move(use), ops, std::move(taken), Kernels::kBest, keep);
}

// The ops as the bytes that an ExecuteRequest has them in; empty if they are many, or have data.
std::string KeyOf(const OpList& ops) {
  std::string key;
  for (const v1::Op& op : ops) {
    if (op.has_write()) return {};
    wire::AppendTag(key, v1::ExecuteRequest::kOpsFieldNumber, wire::kBytes);
    wire::AppendVarint(key, op.ByteSizeLong());
    op.AppendToString(&key);
    if (key.size() > RecentPrograms::kMostBytes) return {};
  }
  return key;
}

}  // namespace

absl::StatusOr<RunRequest> PrepareOps(SessionUse use, const OpList& ops,
                                      std::shared_ptr<InlineData> taken, Kernels kernels) {
  return CompileOps(std::move(use), ops, std::move(taken), kernels, [](const auto&...) {});
}

absl::StatusOr<RunRequest> PrepareView(SessionUse use, const ExecuteView& view,
                                       std::shared_ptr<InlineData> taken,
                                       RequestPool<v1::ExecuteRequest>& pool) {
  if (auto run = RunKept(use, view.ops, taken)) return *std::move(run);
  GEMMD_ASSIGN_OR_RETURN(const auto message, pool.Parse(view.ops));
  return CompileToKeep(std::move(use), view.ops, message->ops(), std::move(taken));
}

absl::StatusOr<RunRequest> PrepareComingAgain(SessionUse use, const OpList& ops) {
  const std::string key = KeyOf(ops);
  if (key.empty()) return PrepareOps(std::move(use), ops);
  std::shared_ptr<InlineData> none;
  if (auto run = RunKept(use, key, none)) return *std::move(run);
  return CompileToKeep(std::move(use), key, ops, nullptr);
}

absl::StatusOr<RunRequest> PreparePlan(SessionUse use, const v1::PlanRun& run,
                                       std::shared_ptr<InlineData> taken) {
  GEMMD_ASSIGN_OR_RETURN(auto handle, ConvertHandle(run.plan_id(), "plan_id"));
  GEMMD_ASSIGN_OR_RETURN(auto plan, use->FindPlan(handle));
  std::vector<Rebinding> rebind;
  rebind.reserve(run.rebind_size());
  for (const v1::Rebinding& change : run.rebind()) {
    GEMMD_ASSIGN_OR_RETURN(auto from, ConvertHandle(change.from_buffer_id(), "from_buffer_id"));
    GEMMD_ASSIGN_OR_RETURN(auto to, ConvertHandle(change.to_buffer_id(), "to_buffer_id"));
    rebind.push_back({from, to});
  }
  Inputs inputs;
  if (taken != nullptr) {
    inputs = std::move(taken->data);
  } else {
    inputs.reserve(run.inputs_size());
    for (const std::string& input : run.inputs()) inputs.push_back(BytesOf(input));
  }
  std::vector<SharedBytes> inline_at;
  inline_at.reserve(run.inline_at_size());
  for (const v1::SharedBytes& place : run.inline_at()) {
    GEMMD_ASSIGN_OR_RETURN(auto buffer, ConvertHandle(place.buffer_id(), "inline_at.buffer_id"));
    inline_at.push_back({buffer, place.offset_bytes()});
  }
  auto bound = BindPlan(std::move(use), std::move(plan), rebind, std::move(inputs), inline_at);
  if (bound.ok()) Keep(std::move(taken), *bound);
  return bound;
}

absl::StatusOr<std::shared_ptr<const Plan>> PrepareNewPlan(Session& session,
                                                           const v1::CreatePlanRequest& request) {
  GEMMD_RETURN_IF_ERROR(CheckLabel(request.label()));
  SlotTable slots(session);
  GEMMD_ASSIGN_OR_RETURN(auto converted,
                         ConvertOps(request.ops(), session.tenant().limits().max_ops, slots));
  if (!converted.shared.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ops[", converted.shared.front().first, "].", std::string(converted.shared.front().second),
        ": a plan's op names no shared memory; name it in PlanRun.inline_at"));
  }
  if (request.deterministic()) Pin(converted.ops);
  return CompilePlan(session, converted.ops, slots, converted.inputs, request.label());
}

void CountRun(ServerState& state, const RunRequest& run) {
  if (run.plan != nullptr) state.metrics().PlanRuns().Increment();
  int64_t in = 0, out = 0;
  for (const auto& input : run.inputs) in += static_cast<int64_t>(input.size());
  for (int64_t bytes : run.output_bytes) out += bytes;
  const std::string& device = run.device->name();
  const auto count = [&](const char* dir, const char* path, int64_t bytes) {
    if (bytes > 0) state.metrics().TransferBytes(device, dir, path).Increment(bytes);
  };
  count("in", "inline", in);
  count("out", "inline", out);
  count("in", "shm", run.shared_in_bytes);
  count("out", "shm", run.shared_out_bytes);
}

absl::StatusOr<OpId> OpIdOf(const v1::ExecuteRequest& request, const InlineData* taken) {
  return MakeOpId(request.op_id(), taken, [&](Digest& digest) {
    for (const v1::Op& op : request.ops()) AddTo(digest, op);
  });
}

// Another number than for the same ops in a message that is no ExecuteView. A try that is repeated
// is the same bytes.
absl::StatusOr<OpId> OpIdOf(const ExecuteView& view, const InlineData* taken) {
  return MakeOpId(view.op_id, taken, [&](Digest& digest) { digest.AddBytes(view.ops); });
}

absl::StatusOr<OpId> OpIdOf(const v1::RunPlanRequest& request, const InlineData* taken) {
  return MakeOpId(request.op_id(), taken, [&](Digest& digest) { AddTo(digest, request.run()); });
}

}  // namespace gemmd::server
