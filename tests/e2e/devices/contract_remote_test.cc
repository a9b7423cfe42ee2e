// The contract suite against a real daemon through the C++ client: the same numbers and rules as
// the backend has directly, by Execute with its inline data in the message and in shared memory,
// through a Queue, and as a plan.

#include <algorithm>
#include <utility>

#include "gemmd/v1/types.pb.h"
#include "tests/e2e/fixture.h"
#include "tests/kernels/contract/executor.h"

namespace gemmd::kernels::contract {
namespace {

enum class Way { kExecute, kShared, kQueue, kPlan };

// The kernels' ops in the client's terms.
class Translator {
 public:
  Translator(const std::vector<client::Buffer>& buffers, absl::Span<const Bytes> inputs)
      : buffers_(buffers), inputs_(inputs) {}

  void operator()(const MatmulOp& op) {
    client::Matmul matmul{.a = Of(op.a),
                          .b = Of(op.b),
                          .d = Of(op.d),
                          .c = op.c ? Of(*op.c) : client::Tensor(),
                          .bias = op.bias ? Of(*op.bias) : client::Tensor(),
                          .alpha = op.alpha,
                          .beta = op.beta,
                          .activation = static_cast<client::Activation>(op.activation),
                          .kernel = op.kernel};
    if (op.gate) matmul.gate = Of(*op.gate);
    if (op.d_scales) matmul.d_scales = Of(*op.d_scales);
    ops.Add(matmul);
  }
  void operator()(const QuantizeOp& op) {
    ops.Add(client::Quantize{Of(op.src), Of(op.dst), Of(op.scales),
                             static_cast<client::ScaleGranularity>(op.granularity),
                             op.rows ? Of(*op.rows) : client::Tensor()});
  }
  void operator()(const GatedOp& op) {
    ops.Add(client::Gated{.src = Of(op.src),
                          .dst = Of(op.dst),
                          .scales = op.scales ? Of(*op.scales) : client::Tensor(),
                          .activation = static_cast<client::Activation>(op.activation),
                          .period = op.period,
                          .alpha = op.alpha,
                          .limit = op.limit,
                          .up_offset = op.up_offset,
                          .alone = op.alone});
  }
  void operator()(const NormalizeOp& op) {
    ops.Add(client::Normalize{.src = Of(op.src),
                              .dst = Of(op.dst),
                              .scales = op.scales ? Of(*op.scales) : client::Tensor(),
                              .weight = op.weight ? Of(*op.weight) : client::Tensor(),
                              .bias = op.bias ? Of(*op.bias) : client::Tensor(),
                              .epsilon = op.epsilon,
                              .centered = op.centered,
                              .addend = op.addend ? Of(*op.addend) : client::Tensor(),
                              .sum = op.sum ? Of(*op.sum) : client::Tensor()});
  }
  void operator()(const GroupedMatmulOp& op) {
    client::GroupedMatmul grouped{.a = Of(op.a), .groups = Of(op.groups)};
    if (op.table.empty()) grouped.b = Of(op.b);
    for (const Operand& matrix : op.table) grouped.weights.push_back(Of(matrix));
    grouped.layout = static_cast<client::GroupLayout>(op.layout);
    grouped.alignment = op.alignment;
    grouped.d = Of(op.d);
    if (op.d_scales) grouped.d_scales = Of(*op.d_scales);
    if (op.gate) grouped.gate = Of(*op.gate);
    if (op.bias) grouped.bias = Of(*op.bias);
    grouped.alpha = op.alpha;
    grouped.activation = static_cast<client::Activation>(op.activation);
    grouped.expected_rows = op.expected_rows;
    grouped.kernel = op.kernel;
    ops.Add(grouped);
  }
  void operator()(const KGroupedMatmulOp& op) {
    client::KGroupedMatmul grouped{.a = Of(op.a), .b = Of(op.b), .groups = Of(op.groups)};
    grouped.layout = static_cast<client::GroupLayout>(op.layout);
    grouped.alignment = op.alignment;
    grouped.d = Of(op.d);
    if (op.c) grouped.c = Of(*op.c);
    grouped.alpha = op.alpha;
    grouped.beta = op.beta;
    grouped.kernel = op.kernel;
    ops.Add(grouped);
  }
  void operator()(const ChooseOp& op) {
    ops.Add(client::ChooseExperts{.logits = Of(op.logits),
                                  .bias = op.bias ? Of(*op.bias) : client::Tensor(),
                                  .experts = Of(op.experts),
                                  .weights = Of(op.weights),
                                  .scores = static_cast<client::RouterScores>(op.scores),
                                  .renormalize = op.renormalize,
                                  .scale = op.scale,
                                  .groups = op.groups,
                                  .top_groups = op.top_groups,
                                  .group_score = static_cast<client::GroupScore>(op.group_score)});
  }
  void operator()(const RouteOp& op) {
    ops.Add(client::RouteRows{Of(op.ids), Of(op.offsets), Of(op.rows), Of(op.positions)});
  }
  void operator()(const CombineOp& op) {
    ops.Add(client::Combine{Of(op.src), Of(op.positions), Of(op.weights), Of(op.dst)});
  }
  void operator()(const ConvertOp& op) { ops.Add(client::Convert{Of(op.src), Of(op.dst)}); }
  void operator()(const CopyOp& op) { ops.Add(client::Copy{Of(op.src), Of(op.dst)}); }
  void operator()(const FillOp& op) { ops.Add(client::Fill{Of(op.dst), op.value}); }
  void operator()(const WriteOp& op) {
    const Bytes& input = inputs_[op.input];
    ops.Add(client::Write{Of(op.dst), {reinterpret_cast<const char*>(input.data()), input.size()}});
  }
  void operator()(const ReadOp& op) {
    ops.Add(client::Read{Of(op.src)});
    outputs.push_back(op.output);
  }

  client::OpList ops;
  std::vector<int> outputs;  // ReadOp::output of each Read, in order

 private:
  client::Tensor Of(const TensorRef& ref) const {
    const auto dims = [](const Dims& d) {
      return std::vector<int64_t>(d.values.begin(), d.values.begin() + d.rank);
    };
    // The wire's numbers are one larger: 0 means unspecified there.
    const auto dtype = static_cast<client::DType>(static_cast<int>(ref.dtype) + 1);
    return client::Tensor(buffers_[ref.slot].id(), dtype, dims(ref.shape), dims(ref.strides),
                          ref.offset_bytes);
  }
  static client::Gate Of(const Gate& gate) {
    return {static_cast<client::Activation>(gate.activation),
            gate.period,
            gate.alpha,
            gate.limit,
            gate.up_offset,
            gate.alone};
  }
  client::Operand Of(const Operand& operand) const {
    return client::Operand(Of(operand.values),
                           static_cast<client::ScaleGranularity>(operand.granularity),
                           operand.scales ? Of(*operand.scales) : client::Tensor());
  }

  const std::vector<client::Buffer>& buffers_;
  absl::Span<const Bytes> inputs_;
};

class RemoteExecutor final : public Executor {
 public:
  explicit RemoteExecutor(Way way)
      : way_(way),
        client_(e2e::ConnectTo(daemon_)),
        session_(e2e::Must(client_.OpenSession())),
        queue_(e2e::Must(session_.OpenQueue())) {}

  absl::StatusOr<Outcome> Run(absl::Span<const Op> ops, absl::Span<const Bytes> slots,
                              absl::Span<const Bytes> inputs,
                              absl::Span<const int64_t> output_bytes) override {
    std::vector<client::Buffer> buffers;
    for (const Bytes& slot : slots) {
      const int64_t size = std::max<int64_t>(static_cast<int64_t>(slot.size()), 1);
      buffers.push_back(e2e::Must(session_.CreateBuffer({.size_bytes = size})));
      if (!slot.empty()) e2e::Must(buffers.back().Upload(client::AsBytes(absl::MakeSpan(slot))));
    }
    Translator translator(buffers, inputs);
    for (const Op& op : ops) std::visit(translator, op);
    absl::StatusOr<client::Result> result = RunOps(translator.ops);
    if (!result.ok()) return result.status();

    Outcome outcome;
    for (size_t i = 0; i < slots.size(); ++i) {
      Bytes& bytes = outcome.slots.emplace_back(slots[i].size());
      if (bytes.empty()) continue;
      e2e::Must(buffers[i].Download({reinterpret_cast<char*>(bytes.data()), bytes.size()}));
    }
    outcome.outputs.resize(output_bytes.size());
    for (int i = 0; i < result->outputs(); ++i) {
      const auto* data = reinterpret_cast<const std::byte*>(result->output(i).data());
      outcome.outputs[translator.outputs[i]].assign(data, data + result->output(i).size());
    }
    for (const v1::OpReport& op : result->report().ops()) outcome.kernels.push_back(op.kernel());
    return outcome;
  }

 private:
  absl::StatusOr<client::Result> RunOps(const client::OpList& ops) {
    if (way_ == Way::kExecute) return session_.Execute(ops, {.route = client::Route::kGrpc});
    if (way_ == Way::kShared) return session_.Execute(ops, {.route = client::Route::kShm});
    if (way_ == Way::kQueue) {
      // An earlier refusal must not stop this one.
      absl::StatusOr<client::Ticket> ticket = queue_.Submit(ops, {.resume = true});
      return ticket.ok() ? ticket->Wait() : ticket.status();
    }
    absl::StatusOr<client::Plan> plan = session_.CreatePlan(ops);
    return plan.ok() ? plan->Run() : plan.status();
  }

  const Way way_;
  e2e::Daemon daemon_;
  client::Client client_;
  client::Session session_;
  client::Queue queue_;
};

Subject By(const std::string& name, Way way, int random_shapes) {
  return {name, [way] { return std::make_unique<RemoteExecutor>(way); }, random_shapes, true};
}

INSTANTIATE_TEST_SUITE_P(Remote, ContractTest,
                         testing::Values(By("execute", Way::kExecute, 40),
                                         By("shared", Way::kShared, 20),
                                         By("queue", Way::kQueue, 20), By("plan", Way::kPlan, 20)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gemmd::kernels::contract
