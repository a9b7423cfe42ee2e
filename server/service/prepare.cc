#include "server/service/prepare.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "server/engine/label.h"

namespace gemmd::server {
namespace {

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
  // Its length, both ends and samples of the rest: going through all of a matrix takes as long as
  // copying it.
  void AddData(std::string_view data) {
    if (data.size() <= 2 * kEnd) return AddBytes(data);
    value_ = absl::HashOf(value_, data.size(), data.substr(0, kEnd));
    for (size_t i = 1; i < kSamples; ++i) {
      AddBytes(data.substr(data.size() / kSamples * i, kSample));
    }
    AddBytes(data.substr(data.size() - kEnd));
  }
  uint64_t value() const { return value_; }

 private:
  static constexpr size_t kEnd = 1024;
  static constexpr size_t kSamples = 64;
  static constexpr size_t kSample = 32;

  void AddBytes(std::string_view bytes) { value_ = absl::HashOf(value_, bytes); }

  uint64_t value_ = 0;
  std::string bytes_;
};

void AddTo(Digest& digest, const v1::Op& op) {
  if (!op.has_write()) return digest.Add(op);
  digest.Add(op.write().dst());
  digest.AddData(op.write().data());
}

void AddTo(Digest& digest, const v1::PlanRun& run) {
  digest.AddData(run.plan_id());
  for (const v1::Rebinding& change : run.rebind()) digest.Add(change);
  for (const std::string& input : run.inputs()) digest.AddData(input);
}

absl::Status CheckOpId(std::string_view id) {
  constexpr size_t kMost = 32;
  if (id.size() <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("op_id has ", id.size(), " bytes, limit ", kMost, "; 16 random bytes do"));
}

template <typename Parts>
absl::StatusOr<OpId> MakeOpId(const std::string& id, const Parts& parts) {
  if (absl::Status fits = CheckOpId(id); !fits.ok()) return fits;
  OpId op_id{.id = id};
  if (id.empty()) return op_id;
  Digest digest;
  for (const auto& part : parts) AddTo(digest, part);
  op_id.program_digest = digest.value();
  return op_id;
}

}  // namespace

absl::StatusOr<RunRequest> PrepareOps(SessionUse use, const OpList& ops) {
  SlotTable slots(*use);
  auto converted = ConvertOps(ops, use->tenant().limits().max_ops, slots);
  if (!converted.ok()) return converted.status();
  return CompileRun(std::move(use), converted->ops, slots, std::move(converted->inputs));
}

absl::StatusOr<RunRequest> PrepareView(SessionUse use, const ExecuteView& view,
                                       RequestPool<v1::ExecuteRequest>& pool) {
  RecentPrograms& programs = use->programs();
  if (const auto plan = programs.Find(view.ops)) {
    auto run = RunAgain(use, *plan);
    if (run.ok()) return run;  // else the way below says what is wrong, and where
  }
  auto message = pool.Parse(view.ops);
  if (!message.ok()) return message.status();
  SlotTable slots(*use);
  auto converted = ConvertOps((*message)->ops(), use->tenant().limits().max_ops, slots);
  if (!converted.ok()) return converted.status();
  auto run = CompileRun(std::move(use), converted->ops, slots, std::move(converted->inputs));
  if (!run.ok()) return run.status();
  if (programs.ComeAgain(view.ops)) {
    if (auto plan = PlanOf(*run, converted->ops, slots)) programs.Keep(view.ops, std::move(plan));
  }
  run->message = *std::move(message);
  return run;
}

absl::StatusOr<RunRequest> PreparePlan(SessionUse use, const v1::PlanRun& run) {
  auto handle = ConvertHandle(run.plan_id(), "plan_id");
  if (!handle.ok()) return handle.status();
  auto plan = use->FindPlan(*handle);
  if (!plan.ok()) return plan.status();
  std::vector<Rebinding> rebind;
  rebind.reserve(run.rebind_size());
  for (const v1::Rebinding& change : run.rebind()) {
    auto from = ConvertHandle(change.from_buffer_id(), "from_buffer_id");
    if (!from.ok()) return from.status();
    auto to = ConvertHandle(change.to_buffer_id(), "to_buffer_id");
    if (!to.ok()) return to.status();
    rebind.push_back({*from, *to});
  }
  Inputs inputs;
  inputs.reserve(run.inputs_size());
  for (const std::string& input : run.inputs()) {
    inputs.push_back(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(input.data()), input.size()));
  }
  return BindPlan(std::move(use), *std::move(plan), rebind, std::move(inputs));
}

absl::StatusOr<std::shared_ptr<const Plan>> PrepareNewPlan(Session& session,
                                                           const v1::CreatePlanRequest& request) {
  if (absl::Status label = CheckLabel(request.label()); !label.ok()) return label;
  SlotTable slots(session);
  auto converted = ConvertOps(request.ops(), session.tenant().limits().max_ops, slots);
  if (!converted.ok()) return converted.status();
  return CompilePlan(session, converted->ops, slots, converted->inputs, request.label());
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

absl::StatusOr<OpId> OpIdOf(const v1::ExecuteRequest& request) {
  return MakeOpId(request.op_id(), request.ops());
}

// Another number than for the same ops in a message that is no ExecuteView. A try that is repeated
// is the same bytes.
absl::StatusOr<OpId> OpIdOf(const ExecuteView& view) {
  if (absl::Status fits = CheckOpId(view.op_id); !fits.ok()) return fits;
  return OpId{.id = std::string(view.op_id), .program_digest = absl::HashOf(view.ops)};
}

absl::StatusOr<OpId> OpIdOf(const v1::RunPlanRequest& request) {
  return MakeOpId(request.op_id(), absl::MakeConstSpan(&request.run(), 1));
}

}  // namespace gemmd::server
