#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/args/printable.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/document.h"
#include "client/cli/numerics/activation.h"
#include "client/cli/quantize.h"
#include "gemmd/v1/compute_service.pb.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

// By the wire's numbers.
constexpr absl::string_view kLayoutNames[] = {"offsets", "counts", "row_ids", "ends"};

constexpr absl::string_view kBDTypeNames[] = {"same", "e4m3", "e5m2"};

constexpr Flag kExplainFlags[] = {
    CountFlag("m", "N", "rows of D", "1024", 1),
    CountFlag("n", "N", "columns of D", "1024", 1),
    CountFlag("k", "N", "length of the sums", "1024", 1),
    CountFlag("batch", "N", "how many of them", "1", 1),
    ChoiceFlag("dtype", kInputDTypeNames, "of A and B", "bf16"),
    ChoiceFlag("b-dtype", kBDTypeNames, "of B where it is not A's", "same"),
    ChoiceFlag("out-dtype", kOutputDTypeNames, "of D", "bf16"),
    ChoiceFlag("quantize", kQuantizeNames, "A and B as this mode leaves them; overrules --dtype",
               "none"),
    {.name = "kn", .help = "B lies as [k, n], as numpy's A @ B has it, instead of [n, k]"},
    {.name = "with-c", .help = "C is added"},
    {.name = "with-bias", .help = "a bias is added"},
    ChoiceFlag("activation", kActivationNames, "of each element of D", "none"),
    {.name = "relu", .help = "the same as --activation relu"},
    CountFlag("groups", "N",
              "a grouped matmul of so many matrices; --m counts the rows of all groups together",
              "0", 0),
    ChoiceFlag("layout", kLayoutNames, "how groups are told; of counts, --m is of each group",
               "offsets"),
    {.name = "along-k",
     .help = "groups are of columns, as a gradient of weights has them: --k counts those of all "
             "groups together; both sides are quantised by 1x128"},
    {.name = "apart", .help = "each group's matrix lies in memory of its own"},
    ChoiceFlag("gate", kActivationNames, "halves of the product are gated: D has n/2 columns",
               "none"),
    CountFlag("expected-rows", "N", "of all groups, as far as is known; 0: as many as A has", "0",
              0),
    NameFlag(Names::kDevices, "device", "on this device; default: the first"),
};

v1::MatmulProblem Problem(const Args& args) {
  const QuantizeMode& mode = QuantizeModeOf(args.Text("quantize"));
  client::DType operand = *client::ParseDType(args.Text("dtype"));
  if (mode.dtype != client::DType::kUnspecified) operand = mode.dtype;
  v1::MatmulProblem problem;
  problem.set_m(args.Count("m"));
  problem.set_n(args.Count("n"));
  problem.set_k(args.Count("k"));
  problem.set_batch(args.Count("batch"));
  problem.set_operand_dtype(static_cast<v1::DType>(operand));
  if (args.Text("b-dtype") != "same") {
    problem.set_b_dtype(static_cast<v1::DType>(*client::ParseDType(args.Text("b-dtype"))));
  }
  problem.set_output_dtype(static_cast<v1::DType>(*client::ParseDType(args.Text("out-dtype"))));
  problem.set_a_granularity(static_cast<v1::ScaleGranularity>(mode.a));
  problem.set_b_granularity(static_cast<v1::ScaleGranularity>(mode.b));
  problem.set_b_is_kn(args.On("kn"));
  problem.set_has_c(args.On("with-c"));
  problem.set_has_bias(args.On("with-bias"));
  problem.set_activation(static_cast<v1::Activation>(
      args.On("relu") ? Activation::kRelu : ActivationNamed(args.Text("activation"))));
  return problem;
}

v1::GroupLayout LayoutNamed(absl::string_view name) {
  const auto layout = std::find(std::begin(kLayoutNames), std::end(kLayoutNames), name);
  return static_cast<v1::GroupLayout>(layout - std::begin(kLayoutNames));
}

// "none" is no gate: D then has n columns.
template <class ProblemProto>
ProblemProto Gated(ProblemProto problem, const Args& args) {
  if (const Activation gate = ActivationNamed(args.Text("gate")); gate != Activation::kNone) {
    problem.mutable_gate()->set_activation(static_cast<v1::Activation>(gate));
  }
  return problem;
}

v1::GroupedMatmulProblem GroupedProblem(const Args& args) {
  const v1::MatmulProblem dense = Problem(args);
  v1::GroupedMatmulProblem problem;
  problem.set_groups(args.Count("groups"));
  problem.set_m(dense.m());
  problem.set_n(dense.n());
  problem.set_k(dense.k());
  problem.set_operand_dtype(dense.operand_dtype());
  problem.set_output_dtype(dense.output_dtype());
  problem.set_a_granularity(dense.a_granularity());
  problem.set_b_granularity(dense.b_granularity());
  problem.set_layout(LayoutNamed(args.Text("layout")));
  problem.set_weights_apart(args.On("apart"));
  problem.set_has_bias(dense.has_bias());
  problem.set_activation(dense.activation());
  problem.set_expected_rows(args.Count("expected-rows"));
  return Gated(std::move(problem), args);
}

// Blocks of 128x128 are a weight's; here B has rows of its own, too.
v1::KGroupedMatmulProblem KGroupedProblem(const Args& args) {
  const v1::MatmulProblem dense = Problem(args);
  v1::KGroupedMatmulProblem problem;
  problem.set_groups(args.Count("groups"));
  problem.set_m(dense.m());
  problem.set_n(dense.n());
  problem.set_k(dense.k());
  problem.set_a_dtype(dense.operand_dtype());
  problem.set_b_dtype(dense.b_dtype());
  problem.set_output_dtype(dense.output_dtype());
  problem.set_a_granularity(dense.a_granularity());
  problem.set_b_granularity(dense.a_granularity());
  problem.set_layout(args.Given("layout") ? LayoutNamed(args.Text("layout"))
                                          : v1::GROUP_LAYOUT_ENDS);
  problem.set_has_c(dense.has_c());
  return problem;
}

// What a grouped matmul has not.
absl::Status CheckGrouped(const Args& args) {
  const auto refuse = [&](std::initializer_list<const char*> flags, absl::string_view beside) {
    for (const char* flag : flags) {
      if (!args.Given(flag)) continue;
      return WithExit(ExitCode::kUsage,
                      absl::InvalidArgumentError(absl::StrCat("--", flag, " does not go with ",
                                                              beside, "; leave it out")));
    }
    return absl::OkStatus();
  };
  if (args.On("along-k")) {
    return refuse(
        {"batch", "kn", "with-bias", "activation", "relu", "apart", "gate", "expected-rows"},
        "--along-k");
  }
  return refuse({"batch", "kn", "with-c", "b-dtype"}, "--groups");
}

absl::Status CheckAlone(const Args& args) {
  if (args.On("along-k")) {
    return WithExit(ExitCode::kUsage,
                    absl::InvalidArgumentError("--along-k needs --groups; give their number"));
  }
  return absl::OkStatus();
}

absl::Status RunExplain(Invocation& call) {
  const bool grouped = call.args.Count("groups") > 0;
  GEMMD_RETURN_IF_ERROR(grouped ? CheckGrouped(call.args) : CheckAlone(call.args));
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  const std::string device = call.args.Text("device");
  absl::StatusOr<v1::ExplainResponse> answer =
      call.args.On("along-k") ? client.Explain(KGroupedProblem(call.args), device)
      : grouped               ? client.Explain(GroupedProblem(call.args), device)
                              : client.Explain(Gated(Problem(call.args), call.args), device);
  if (!answer.ok()) return answer.status();
  std::vector<std::vector<std::string>> rows = {{"", "kernel", "modelled", "measured", "why not"}};
  const auto seconds = [](double value) { return value > 0 ? HumanSeconds(value) : "-"; };
  for (const v1::Candidate& candidate : answer->candidates()) {
    rows.push_back(
        {candidate.chosen() ? "*" : "", candidate.kernel(), seconds(candidate.modelled_seconds()),
         absl::StrCat(seconds(candidate.measured_seconds()), candidate.tuned() ? " here" : ""),
         candidate.why_not()});
  }
  call.out.Result(DocumentOf(*answer),
                  absl::StrCat(Printable(answer->problem()), " on ", Printable(answer->device()),
                               "\n\n", Table(rows)));
  return absl::OkStatus();
}

}  // namespace

const Command kExplainCommand = {
    .name = "explain",
    .summary = "show which kernels could serve a matmul or a grouped one, which one would, and why",
    .details =
        "Nothing is run. '*' marks the kernel that would be chosen; times are the cost model's and "
        "the tuning\n"
        "table's, where it has an entry.",
    .flags = kExplainFlags,
    .run = RunExplain};

}  // namespace gemmd::cli
