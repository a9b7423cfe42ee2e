#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/load_file.h"
#include "client/cli/matmul_job.h"
#include "client/cli/matmul_report.h"
#include "client/cli/transfers.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Positional kMatmulPositionals[] = {
    {.name = "A",
     .help = "[m, k] or [batch, m, k]: FILE.npy, FILE.safetensors[:NAME], or @NAME of a published "
             "weight",
     .kind = ValueKind::kFile},
    {.name = "B",
     .help = "[k, n], or [n, k] with --nt; may lead with A's batch",
     .kind = ValueKind::kFile},
};
constexpr Flag kMatmulFlags[] = {
    {.name = "output",
     .letter = 'o',
     .kind = ValueKind::kFile,
     .value = "FILE",
     .help = "write D to FILE.npy or FILE.safetensors[:NAME], which is new or --force is given"},
    kForceFlag,
    {.name = "verify",
     .help =
         "recompute in float64, on the operands as the server holds them (exit code 1 beyond the "
         "bound) and on what the files hold"},
    ChoiceFlag("quantize", kQuantizeNames,
               "on the device, before multiplying; fp8-block: A 1x128, B 128x128", "none"),
    ChoiceFlag(
        "out-dtype", kOutputDTypeNames,
        "of D; default: A's type, bf16 for quantised operands, f32 for e4m3, e5m2 and i8 files"),
    {.name = "nt", .help = "B lies as [n, k]: D = A B^T"},
    ChoiceFlag(
        "dtype", kInputDTypeNames,
        "what a .npy file's opaque elements are (numpy has no name for bf16, e4m3 and e5m2)"),
    FileFlag("c", "FILE", "C, of D's shape, added times beta"),
    FileFlag("bias", "FILE", "[n], added to every row"),
    NumberFlag("alpha", "X", "factor of A B", "1"),
    NumberFlag("beta", "X", "factor of C; default 1 with --c, otherwise 0"),
    ChoiceFlag("activation", kActivationNames, "of each element of D, behind all else", "none"),
    {.name = "relu", .help = "the same as --activation relu"},
    NameFlag(Names::kKernels, "kernel", "insist on a kernel of 'gemmctl kernels'"),
    NameFlag(Names::kDevices, "device", "where; default: the server chooses"),
    ChoiceFlag("route", kRouteNames, "how bytes travel", "auto"),
};

absl::Status BadFile(const absl::Status& status) { return WithExit(ExitCode::kBadFile, status); }
absl::Status Usage(std::string message) {
  return WithExit(ExitCode::kUsage, absl::InvalidArgumentError(message));
}

// "m/w" of "@m/w"; empty for a file.
std::string PublishedNameOf(const std::string& text) {
  return text.size() > 1 && text[0] == '@' ? text.substr(1) : "";
}

// All but what is published.
absl::StatusOr<MatmulInputs> LoadInputs(const Invocation& call) {
  MatmulInputs inputs;
  files::Matrix a, b;
  struct Wanted {
    std::string path;
    files::Matrix* matrix;
  };
  std::vector<LoadedFile> loaded;
  if (call.args.Given("c")) inputs.c.emplace();
  if (call.args.Given("bias")) inputs.bias.emplace();
  for (const Wanted& wanted :
       {Wanted{call.args.Positional(0), &a}, Wanted{call.args.Positional(1), &b},
        Wanted{call.args.Text("c"), inputs.c ? &*inputs.c : nullptr},
        Wanted{call.args.Text("bias"), inputs.bias ? &*inputs.bias : nullptr}}) {
    if (wanted.matrix == nullptr || !PublishedNameOf(wanted.path).empty()) continue;
    GEMMD_ASSIGN_OR_RETURN(files::Matrix matrix, LoadFile(call, wanted.path));
    *wanted.matrix = std::move(matrix);
    loaded.push_back({wanted.path, *wanted.matrix});
  }
  WarnOfNarrowing(call, loaded);
  inputs.a = MatmulInput(std::move(a));
  inputs.b = MatmulInput(std::move(b));
  return inputs;
}

absl::Status FindInputs(const Args& args, client::Session& session, MatmulInputs& inputs) {
  MatmulInput* const operands[] = {&inputs.a, &inputs.b};
  for (int i = 0; i < 2; ++i) {
    const std::string name = PublishedNameOf(args.Positional(i));
    if (name.empty()) continue;
    GEMMD_ASSIGN_OR_RETURN(*operands[i], MatmulInput::Find(session, name));
  }
  return absl::OkStatus();
}

// What a weight with scales can be multiplied with, and how it must lie.
absl::Status CheckScaled(const MatmulInputs& inputs, const MatmulSettings& settings) {
  if (inputs.a.scaled()) {
    return Usage("A is e4m3 with its scales, as weights are: give it as B, with --nt");
  }
  if (!inputs.b.scaled()) return absl::OkStatus();
  if (!settings.nt) return Usage("B is published as [n, k] with its scales; give --nt");
  if (settings.quantize.dtype != client::DType::kE4M3) {
    return Usage(inputs.b.granularity() == client::ScaleGranularity::kPerRow
                     ? "B is e4m3 with a scale a row; give --quantize fp8-row, for A"
                     : "B is e4m3 with scales of 128x128; give --quantize fp8-block, for A");
  }
  return absl::OkStatus();
}

absl::StatusOr<MatmulSettings> Settings(const Args& args, const MatmulInputs& inputs) {
  MatmulSettings settings = {
      .quantize = QuantizeModeOf(args.Text("quantize")),
      .nt = args.On("nt"),
      .alpha = static_cast<float>(args.Number("alpha")),
      .beta = static_cast<float>(args.Given("beta") ? args.Number("beta") : args.Given("c")),
      .activation = args.On("relu") ? Activation::kRelu : ActivationNamed(args.Text("activation")),
      .kernel = args.Text("kernel"),
      .route = RouteOf(args.Text("route"))};
  if (args.On("relu") && args.Given("activation")) {
    return Usage("--relu and --activation are two words for one thing; give --activation alone");
  }
  if (settings.beta != 0 && !inputs.c) return Usage("--beta needs --c");
  const files::DType a = inputs.a.dtype();
  const files::DType b = inputs.b.dtype();
  const bool quantised = settings.quantize.dtype != client::DType::kUnspecified;
  if (!quantised && a != b && !inputs.b.scaled()) {
    return Usage(absl::StrCat("A is ", files::DTypeName(a), " and B ", files::DTypeName(b),
                              "; without --quantize both must be of one type"));
  }
  GEMMD_RETURN_IF_ERROR(CheckScaled(inputs, settings));
  for (const MatmulInput* input : {&inputs.a, &inputs.b}) {
    const files::DType dtype = input->dtype();
    if (quantised && !input->scaled() && files::ElementSize(dtype) == 1) {
      return Usage(absl::StrCat("--quantize ", settings.quantize.name,
                                " takes f32, bf16 and f16, not ", files::DTypeName(dtype),
                                "; use --quantize none"));
    }
  }
  if (args.Given("out-dtype")) {
    settings.out_dtype = *client::ParseDType(args.Text("out-dtype"));
  } else if (quantised) {
    settings.out_dtype = client::DType::kBF16;
  } else if (a == files::DType::kBf16 || a == files::DType::kF16) {
    settings.out_dtype = ToClient(a);
  }
  return settings;
}

struct Place {
  client::Client client;
  client::Session session;
};

// Does nothing once it is open.
absl::Status Open(const Args& args, std::optional<Place>& place) {
  if (place) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(args, CallKind::kWork));
  GEMMD_ASSIGN_OR_RETURN(
      client::Session session,
      client.OpenSession({.label = "gemmctl matmul", .device = args.Text("device")}));
  place = Place{std::move(client), std::move(session)};
  return absl::OkStatus();
}

absl::StatusOr<MatmulShape> CheckedShape(const MatmulInputs& inputs, bool nt) {
  absl::StatusOr<MatmulShape> shape = ShapeOfMatmul(inputs.a.shape(), inputs.b.shape(), nt);
  if (!shape.ok()) return BadFile(shape.status());
  absl::Status fits = inputs.c ? CheckC(*shape, inputs.c->shape()) : absl::OkStatus();
  if (fits.ok() && inputs.bias) fits = CheckBias(*shape, inputs.bias->shape());
  if (!fits.ok()) return BadFile(fits);
  return shape;
}

// Fetches D into the file that is written, or into memory where --verify alone wants it. What
// --verify found.
absl::StatusOr<std::optional<Verified>> FetchD(bool verify, const MatmulShape& shape,
                                               client::DType dtype, MatmulJob& job,
                                               std::optional<files::MatrixWriter>& writer) {
  if (!writer && !verify) return std::nullopt;
  std::vector<std::byte> memory;
  if (!writer) memory.resize(shape.batch * shape.m * shape.n * client::SizeBytes(dtype));
  const absl::Span<std::byte> d = writer ? writer->data() : absl::MakeSpan(memory);
  GEMMD_RETURN_IF_ERROR(job.DownloadD(d));
  if (!verify) return std::nullopt;
  return job.Check(d);
}

absl::Status RunMatmul(Invocation& call) {
  const std::string output = call.args.Text("output");
  // Everything that can be wrong here is found before the server hears of it, but for what is
  // published: that only the server knows.
  if (!output.empty()) {
    absl::StatusOr<files::MatrixPath> path = files::ParseMatrixPath(output);
    if (!path.ok()) return Usage(absl::StrCat("--output: ", path.status().message()));
  }
  GEMMD_ASSIGN_OR_RETURN(MatmulInputs inputs, LoadInputs(call));
  std::optional<Place> place;
  if (!PublishedNameOf(call.args.Positional(0)).empty() ||
      !PublishedNameOf(call.args.Positional(1)).empty()) {
    GEMMD_RETURN_IF_ERROR(Open(call.args, place));
    GEMMD_RETURN_IF_ERROR(FindInputs(call.args, place->session, inputs));
  }
  GEMMD_ASSIGN_OR_RETURN(MatmulSettings settings, Settings(call.args, inputs));
  GEMMD_ASSIGN_OR_RETURN(MatmulShape shape, CheckedShape(inputs, settings.nt));
  std::optional<files::MatrixWriter> writer;
  if (!output.empty()) {
    GEMMD_ASSIGN_OR_RETURN(
        writer, CreateFile(call.args, output, ToFile(settings.out_dtype), shape.DShape()));
  }
  GEMMD_RETURN_IF_ERROR(Open(call.args, place));

  MatmulJob job(place->session, inputs, settings, shape, call.out);
  GEMMD_RETURN_IF_ERROR(job.Upload());
  GEMMD_ASSIGN_OR_RETURN(client::Result result, job.Run());
  GEMMD_ASSIGN_OR_RETURN(std::optional<Verified> verified,
                         FetchD(call.args.On("verify"), shape, settings.out_dtype, job, writer));
  // A wrong D is written too: whoever asked wants to look at it.
  if (writer) GEMMD_RETURN_IF_ERROR(CommitFile(*writer));
  const MatmulReport report = {.shape = shape,
                               .settings = settings,
                               .result = result,
                               .job = job,
                               .output = output,
                               .verified = verified};
  call.out.Result(ReportJson(report), ReportText(report));
  if (!report.verified || report.verified->kernel.ok) return absl::OkStatus();
  return WithExit(ExitCode::kCheckFailed, absl::DataLossError(VerifyText(report.verified->kernel)));
}

}  // namespace

const Command kMatmulCommand = {
    .name = "matmul",
    .summary = "multiply two matrix files on the server: D = act(alpha A B + beta C + bias)",
    .details =
        "  gemmctl matmul a.npy b.npy -o d.npy --quantize fp8-block --verify\n\n"
        "@m/layer.0.w is the published weight m/layer.0.w ('gemmctl load', 'gemmctl upload'). One "
        "of e4m3 with scales is B, with --nt and --quantize fp8-block, or fp8-row where it has one "
        "a row.\n\n"
        "Types: f32, bf16, f16, e4m3 (float8_e4m3fn), e5m2 (float8_e5m2) and i8; f64 is narrowed "
        "to f32 with a "
        "warning, "
        "other integers are refused. .npy has no name for bf16 and e4m3: numpy saves ml_dtypes' "
        "arrays as opaque bytes, which --dtype names.\n\n"
        "--verify tells two errors, each ||D - ref|| / ||ref||. The kernel's: ref is of the "
        "operands "
        "as the server holds them, after quantising. Its bound is 1e-5 for f32 results (1e-3 of "
        "e4m3 "
        "operands), 5e-3 for bf16 and 1e-3 for f16; where sums cancel, FP32 rounding is granted on "
        "top. The files': ref is of the numbers in the files, so that quantising, narrowing and "
        "rounding all count; nothing bounds it but your own need. Beyond 8.6e9 multiply-adds a "
        "random "
        "sample of rows is checked, and the report says so.",
    .positionals = kMatmulPositionals,
    .flags = kMatmulFlags,
    .run = RunMatmul};

}  // namespace gemmd::cli
