#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/document.h"
#include "gemmd/v1/device_service.pb.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Flag kKernelsFlags[] = {
    NameFlag(Names::kDevices, "device", "of this device only, such as cpu:0"),
};

absl::Status RunKernels(Invocation& call) {
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Kernel> kernels,
                         client.ListKernels(call.args.Text("device")));
  Json document = {{"kernels", Json::array()}};
  std::vector<std::vector<std::string>> rows = {{"device", "kernel", "family", "description"}};
  for (const v1::Kernel& kernel : kernels) {
    document["kernels"].push_back(DocumentOf(kernel));
    // Why a kernel is never chosen matters more than what it could do.
    rows.push_back({kernel.device(), kernel.name(), kernel.family(),
                    kernel.why_off().empty() ? kernel.description() : "off: " + kernel.why_off()});
  }
  call.out.Result(document, Table(rows));
  return absl::OkStatus();
}

}  // namespace

const Command kKernelsCommand = {.name = "kernels",
                                 .summary = "list the kernels that matmuls are served by",
                                 .details =
                                     "Insist on one with 'gemmctl matmul --kernel NAME'. One "
                                     "that is off is never chosen: the line says why.",
                                 .flags = kKernelsFlags,
                                 .run = RunKernels};

}  // namespace gemmd::cli
