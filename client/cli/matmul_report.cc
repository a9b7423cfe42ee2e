#include "client/cli/matmul_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/args/printable.h"
#include "client/cli/document.h"
#include "client/cli/transfers.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::cli {
namespace {

std::string ReasonText(v1::ChoiceReason reason) {
  switch (reason) {
    case v1::CHOICE_REASON_TABLE:
      return "measured fastest (tuning table)";
    case v1::CHOICE_REASON_TUNED:
      return "measured fastest on this device";
    case v1::CHOICE_REASON_MODEL:
      return "the cost model's best";
    case v1::CHOICE_REASON_FORCED:
      return "asked for";
    case v1::CHOICE_REASON_FALLBACK:
      return "fallback: nothing better serves this problem";
    case v1::CHOICE_REASON_ONLY:
      return "the only one";
    default:
      return "reason not given";
  }
}

double PerSecond(double amount, const v1::OpReport& op) {
  return op.device_seconds() > 0 ? amount / op.device_seconds() : 0;
}

Json OpJson(const v1::OpReport& op) {
  Json document = DocumentOf(op);
  document["tflops"] = PerSecond(op.flops(), op) / 1e12;
  document["gb_per_second"] = PerSecond(op.bytes(), op) / 1e9;
  return document;
}

Json VerifyJson(const Verified& verified) {
  const VerifyReport& report = verified.kernel;
  return {{"ok", report.ok},
          {"relative_error", report.relative_error},
          {"bound", report.bound},
          {"max_abs_error", report.max_abs_error},
          {"nonfinite_wrong", report.nonfinite_wrong},
          {"nonfinite_right", report.nonfinite_right},
          {"rows_checked", report.rows_checked},
          {"rows_total", report.rows_total},
          {"against_files",
           {{"relative_error", verified.files.relative_error},
            {"max_abs_error", verified.files.max_abs_error},
            {"nonfinite_wrong", verified.files.nonfinite_wrong}}}};
}

std::string NonfiniteText(const VerifyReport& report) {
  std::string text;
  if (report.nonfinite_right > 0) {
    absl::StrAppend(&text, ", ", report.nonfinite_right,
                    " elements are NaN or infinite, as they should be");
  }
  if (report.nonfinite_wrong > 0) {
    absl::StrAppend(&text, ", ", report.nonfinite_wrong,
                    " elements are NaN or infinite and should not be, or the reverse");
  }
  return text;
}

// "against the files: relative error 3.7e-02, quantised to fp8-block".
std::string FilesText(const MatmulReport& report) {
  const VerifyReport& files = report.verified->files;
  const bool quantised = report.settings.quantize.dtype != client::DType::kUnspecified;
  return absl::StrFormat(
      "against the files: relative error %.2e%s%s", files.relative_error,
      quantised ? absl::StrCat(", quantised to ", report.settings.quantize.name) : "",
      NonfiniteText(files));
}

}  // namespace

Json ReportJson(const MatmulReport& report) {
  const v1::ProgramReport& program = report.result.report();
  Json document = {{"batch", report.shape.batch},
                   {"m", report.shape.m},
                   {"n", report.shape.n},
                   {"k", report.shape.k},
                   {"quantize", std::string(report.settings.quantize.name)},
                   {"out_dtype", std::string(client::Name(report.settings.out_dtype))},
                   {"output", report.output.empty() ? Json() : Json(report.output)},
                   {"device", program.device()},
                   {"queue_seconds", program.queue_seconds()},
                   {"device_seconds", program.device_seconds()},
                   {"ops", Json::array()},
                   {"upload", TransferJson(report.job.uploaded())},
                   {"download", nullptr},
                   {"verify", nullptr}};
  for (const v1::OpReport& op : program.ops()) document["ops"].push_back(OpJson(op));
  if (report.job.downloaded().bytes > 0)
    document["download"] = TransferJson(report.job.downloaded());
  if (report.verified) document["verify"] = VerifyJson(*report.verified);
  return document;
}

std::string ReportText(const MatmulReport& report) {
  const v1::ProgramReport& program = report.result.report();
  std::string text =
      absl::StrFormat("D [%s%d, %d] %s, k=%d, on %s\n",
                      report.shape.a_batched ? absl::StrCat(report.shape.batch, ", ") : "",
                      report.shape.m, report.shape.n, client::Name(report.settings.out_dtype),
                      report.shape.k, Printable(program.device()));
  for (const v1::OpReport& op : program.ops()) {
    absl::StrAppendFormat(&text, "%-9s  %s", Printable(op.op()), HumanSeconds(op.device_seconds()));
    if (op.flops() > 0)
      absl::StrAppendFormat(&text, ", %.3f TFLOP/s", PerSecond(op.flops(), op) / 1e12);
    absl::StrAppendFormat(&text, ", %.2f GB/s", PerSecond(op.bytes(), op) / 1e9);
    if (!op.kernel().empty())
      absl::StrAppend(&text, "; ", Printable(op.kernel()), ", ", ReasonText(op.reason()));
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, "queued     ", HumanSeconds(program.queue_seconds()), ", on the device ",
                  HumanSeconds(program.device_seconds()), "\n");
  absl::StrAppend(&text, "upload     ", TransferText(report.job.uploaded()), "\n");
  if (report.job.downloaded().bytes > 0) {
    absl::StrAppend(&text, "download   ", TransferText(report.job.downloaded()), "\n");
  }
  if (report.verified) {
    absl::StrAppend(&text, "verify     the kernel: ", VerifyText(report.verified->kernel), "\n",
                    "           ", FilesText(report), "\n");
  }
  if (!report.output.empty()) absl::StrAppend(&text, "wrote      ", report.output, "\n");
  return text;
}

std::string VerifyText(const VerifyReport& report) {
  std::string text = absl::StrFormat(
      "relative error %.2e %s the bound %.2e", report.relative_error,
      report.relative_error <= report.bound ? "is within" : "is beyond", report.bound);
  absl::StrAppend(&text, NonfiniteText(report));
  if (report.rows_checked == report.rows_total) {
    absl::StrAppend(&text, ", all ", report.rows_total, " rows checked");
  } else {
    absl::StrAppend(&text, ", a random ", report.rows_checked, " of ", report.rows_total,
                    " rows checked");
  }
  return text;
}

}  // namespace gemmd::cli
