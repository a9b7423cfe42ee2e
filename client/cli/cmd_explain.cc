#include "absl/strings/str_cat.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/args/printable.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/numerics/activation.h"
#include "client/cli/quantize.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::cli {
namespace {

constexpr Flag kFlags[] = {
    CountFlag("m", "N", "rows of D", "1024", 1),
    CountFlag("n", "N", "columns of D", "1024", 1),
    CountFlag("k", "N", "length of the sums", "1024", 1),
    CountFlag("batch", "N", "how many of them", "1", 1),
    ChoiceFlag("dtype", kInputDTypeNames, "of A and B", "bf16"),
    ChoiceFlag("out-dtype", kOutputDTypeNames, "of D", "bf16"),
    ChoiceFlag("quantize", kQuantizeNames, "A and B as this mode leaves them; overrules --dtype",
               "none"),
    {.name = "kn", .help = "B lies as [k, n], as numpy's A @ B has it, instead of [n, k]"},
    {.name = "with-c", .help = "C is added"},
    {.name = "with-bias", .help = "a bias is added"},
    ChoiceFlag("activation", kActivationNames, "of each element of D", "none"),
    {.name = "relu", .help = "the same as --activation relu"},
    TextFlag("device", "NAME", "on this device; default: the first"),
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

absl::Status RunExplain(Invocation& call) {
  absl::StatusOr<client::Client> client = Connect(call.args, CallKind::kLookUp);
  if (!client.ok()) return client.status();
  absl::StatusOr<v1::ExplainResponse> answer =
      client->Explain(Problem(call.args), call.args.Text("device"));
  if (!answer.ok()) return Explained(answer.status(), call.args.Text("server"));
  Json document = {
      {"device", answer->device()}, {"problem", answer->problem()}, {"candidates", Json::array()}};
  std::vector<std::vector<std::string>> rows = {{"", "kernel", "modelled", "measured", "why not"}};
  const auto seconds = [](double value) { return value > 0 ? HumanSeconds(value) : "-"; };
  for (const v1::Candidate& candidate : answer->candidates()) {
    document["candidates"].push_back({{"kernel", candidate.kernel()},
                                      {"chosen", candidate.chosen()},
                                      {"feasible", candidate.feasible()},
                                      {"why_not", candidate.why_not()},
                                      {"modelled_seconds", candidate.modelled_seconds()},
                                      {"measured_seconds", candidate.measured_seconds()},
                                      {"tuned", candidate.tuned()}});
    rows.push_back(
        {candidate.chosen() ? "*" : "", candidate.kernel(), seconds(candidate.modelled_seconds()),
         absl::StrCat(seconds(candidate.measured_seconds()), candidate.tuned() ? " here" : ""),
         candidate.why_not()});
  }
  call.out.Result(document, absl::StrCat(Printable(answer->problem()), " on ",
                                         Printable(answer->device()), "\n\n", Table(rows)));
  return absl::OkStatus();
}

}  // namespace

const Command kExplainCommand = {
    .name = "explain",
    .summary = "show which kernels could serve a matmul, which one would, and why",
    .details =
        "Nothing is run. '*' marks the kernel that would be chosen; times are the cost model's and "
        "the tuning\n"
        "table's, where it has an entry.",
    .flags = kFlags,
    .run = RunExplain};

}  // namespace gemmd::cli
