#include "kernels/bench/cuda/machine.h"

#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/bench/cuda/cupti_timer.h"
#include "kernels/bench/cuda/floor.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/legality.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::ToStatus;

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ...": the first word of digits and
// two dots. Containers without /proc/driver only know which CUDA the driver serves.
std::string DriverVersion() {
  std::ifstream in("/proc/driver/nvidia/version");
  std::string line;
  std::getline(in, line);
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(line, ' '))) {
    if (!word.empty() && word.find_first_not_of("0123456789.") == std::string::npos &&
        absl::StrContains(word, ".")) {
      return word;
    }
  }
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) return "unknown";
  return absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

// Some machines load CUPTI, take every call and report nothing: better known now than in mid-run.
absl::Status ProbeTimer(Machine& machine) {
  constexpr int64_t kBytes = 1 << 19;
  const Call copy = [&machine](cudaStream_t stream) {
    const DeviceBuffer& buffer = machine.flush.buffer();
    return ToStatus(LaunchCopy(buffer.data(), buffer.data() + kBytes, kBytes, 1, stream), "copy");
  };
  return machine.timer->Time({copy, copy}, 2).status();
}

absl::Status OpenTimer(const Options& options, absl::Status cupti, Machine& machine) {
  if (cupti.ok()) {
    machine.timer = MakeCuptiTimer(machine.flush, machine.stream);
    cupti = ProbeTimer(machine);
  }
  if (cupti.ok()) {
    machine.timer_text = "cupti: the device's own records of each kernel";
    return absl::OkStatus();
  }
  if (options.timer == "cupti") return cupti;
  machine.timer = MakeEventTimer(machine.flush, machine.stream);
  machine.timer_text =
      absl::StrCat("events around a graph, less an empty kernel (no CUPTI: ", cupti.message(), ")");
  return ProbeTimer(machine);
}

void OpenPeers(const Options& options, Machine& machine) {
  if (!options.peers) {
    machine.cublaslt_text = "left out";
    return;
  }
  absl::StatusOr<cuda::CublasLt> lt = cuda::CublasLt::Load(options.library_dir);
  if (lt.ok()) {
    machine.cublaslt = *std::move(lt);
    machine.peers.emplace(&*machine.cublaslt);
    machine.cublaslt_text = absl::StrCat(machine.cublaslt->version());
  } else {
    machine.cublaslt_text = std::string(lt.status().message());
  }
}

}  // namespace

Machine::~Machine() {
  timer.reset();
  cublaslt.reset();
  if (stream != nullptr) cudaStreamDestroy(stream);
}

absl::StatusOr<std::unique_ptr<Machine>> OpenMachine(const Options& options) {
  const absl::Status cupti = options.timer == "events" ? absl::UnimplementedError("not asked for")
                                                       : StartCupti(options.library_dir);
  auto machine = std::make_unique<Machine>();
  for (cudaError_t code : {cudaSetDevice(options.device), cudaFree(nullptr),
                           cudaStreamCreateWithFlags(&machine->stream, cudaStreamNonBlocking)}) {
    if (code != cudaSuccess) return ToStatus(code, absl::StrCat("device ", options.device));
  }
  absl::StatusOr<cuda::DeviceTraits> traits = cuda::TraitsOf(options.device);
  if (!traits.ok()) return traits.status();
  machine->traits = *std::move(traits);
  if (const std::string why = cuda::WhyNot(machine->traits); !why.empty()) {
    return absl::UnimplementedError(why);
  }
  machine->driver = DriverVersion();
  const bool code = options.cold_code || options.sweep || options.tune;
  const int64_t flush_bytes = int64_t{options.flush_mib} << 20;
  if (absl::Status status = machine->flush.Prepare(code, machine->traits.sms, flush_bytes);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = OpenTimer(options, cupti, *machine); !status.ok()) return status;
  OpenPeers(options, *machine);
  return machine;
}

std::string FiguresHead(const Machine& machine, const std::string& commit) {
  const std::string date = absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone());
  return absl::StrCat("{\"gpu\": \"", machine.traits.model, "\", \"driver\": \"", machine.driver,
                      "\", \"date\": \"", date, "\", \"commit\": \"", commit, "\", \"timer\": \"",
                      machine.timer->method(), "\",\n \"figures\": [\n");
}

absl::StatusOr<double> MeasureCopy(Machine& machine, int repeats) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  DeviceBuffer source, target;
  for (absl::Status status : {source.Reserve(kBytes), target.Reserve(kBytes)}) {
    if (!status.ok()) return status;
  }
  const cudaError_t filled = cudaMemsetAsync(source.data(), 0x5a, kBytes, machine.stream);
  if (filled != cudaSuccess) return ToStatus(filled, "filling the copy's source");
  const int sms = machine.traits.sms;
  const Call copy = [&, sms](cudaStream_t stream) {
    return ToStatus(LaunchCopy(source.data(), target.data(), kBytes, sms, stream), "copy");
  };
  absl::StatusOr<std::vector<std::vector<double>>> seconds = machine.timer->Time({copy}, repeats);
  if (!seconds.ok()) return seconds.status();
  return 2 * kBytes / Median((*seconds)[0]) * 1e-9;
}

}  // namespace gemmd::kernels::bench
