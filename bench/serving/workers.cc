#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/generator.h"
#include "bench/load/percentiles.h"
#include "bench/serving/pump.h"
#include "bench/serving/suite.h"
#include "gemmd/v1/device_service.pb.h"

namespace gemmd::bench {
namespace {

// The weight under a name, taken away again at the end.
class Published {
 public:
  static absl::StatusOr<std::unique_ptr<Published>> Make(const Serving& serving) {
    auto published = std::make_unique<Published>();
    published->session_ = &serving.session;
    const MatmulSize& size = serving.sizes.unary;
    const cli::QuantizeMode& mode = cli::QuantizeModeOf("fp8-block");
    absl::StatusOr<client::Buffer> values =
        RandomMatrix(serving.session, client::DType::kBF16, size.n, size.k, 7);
    if (!values.ok()) return values.status();
    absl::StatusOr<client::Buffer> scales =
        QuantizeInPlace(serving.session, mode.dtype, mode.b, *values);
    if (!scales.ok()) return scales.status();
    published->values_ = *std::move(values);
    published->scales_ = *std::move(scales);
    const std::string name =
        absl::StrCat("gemmd-bench-", getpid(), "-", absl::ToUnixNanos(absl::Now()));
    for (auto [buffer, suffix] :
         {std::pair(&published->values_, "-values"), std::pair(&published->scales_, "-scales")}) {
      absl::Status status = serving.session.Publish(*buffer, absl::StrCat(name, suffix));
      if (!status.ok()) return status;
      published->names_.push_back(absl::StrCat(name, suffix));
    }
    return published;
  }
  ~Published() {
    for (const std::string& name : names_) session_->Unpublish(name).IgnoreError();
  }

  const std::string& values() const { return names_[0]; }
  const std::string& scales() const { return names_[1]; }
  int64_t bytes() const { return values_.size_bytes() + scales_.size_bytes(); }

 private:
  client::Session* session_ = nullptr;
  client::Buffer values_, scales_;
  std::vector<std::string> names_;
};

// One worker: a connection and a session, activations of its own, the weight that all share.
struct Worker {
  client::Client client;
  client::Session session;
  client::Buffer weight, weight_scales, activations, activation_scales, result;
  client::OpList ops;
  int64_t own_bytes() const {
    return activations.size_bytes() + activation_scales.size_bytes() + result.size_bytes();
  }
};

absl::StatusOr<std::unique_ptr<Worker>> StartWorker(const Serving& serving,
                                                    const Published& published) {
  auto worker = std::make_unique<Worker>();
  absl::StatusOr<client::Client> client = client::Client::Connect(serving.target, serving.options);
  if (!client.ok()) return client.status();
  worker->client = *std::move(client);
  absl::StatusOr<client::Session> session =
      worker->client.OpenSession({.label = "gemmd_bench worker", .device = serving.device});
  if (!session.ok()) return session.status();
  worker->session = *std::move(session);
  const MatmulSize& size = serving.sizes.unary;
  const cli::QuantizeMode& mode = cli::QuantizeModeOf("fp8-block");
  absl::StatusOr<client::Buffer> weight = worker->session.Find(published.values());
  if (!weight.ok()) return weight.status();
  absl::StatusOr<client::Buffer> scales = worker->session.Find(published.scales());
  if (!scales.ok()) return scales.status();
  absl::StatusOr<client::Buffer> activations =
      RandomMatrix(worker->session, client::DType::kBF16, size.m, size.k, 8);
  if (!activations.ok()) return activations.status();
  absl::StatusOr<client::Buffer> activation_scales =
      QuantizeInPlace(worker->session, mode.dtype, mode.a, *activations);
  if (!activation_scales.ok()) return activation_scales.status();
  absl::StatusOr<client::Buffer> result =
      worker->session.CreateBuffer({.dtype = client::DType::kBF16, .shape = {size.m, size.n}});
  if (!result.ok()) return result.status();
  worker->session.FlushDeletions();  // of what the activations were quantised from
  worker->ops.Add(client::Matmul{.a = OperandOf(*activations, mode.a, *activation_scales),
                                 .b = OperandOf(*weight, mode.b, *scales),
                                 .d = result->tensor()});
  worker->weight = *std::move(weight);
  worker->weight_scales = *std::move(scales);
  worker->activations = *std::move(activations);
  worker->activation_scales = *std::move(activation_scales);
  worker->result = *std::move(result);
  return worker;
}

absl::StatusOr<int64_t> UsedBytes(const Serving& serving) {
  absl::StatusOr<std::vector<v1::Device>> devices = serving.client.ListDevices();
  if (!devices.ok()) return devices.status();
  for (const v1::Device& device : *devices) {
    if (device.name() == serving.device) return device.used_bytes();
  }
  return absl::NotFoundError(absl::StrCat("the daemon lists no device ", serving.device));
}

absl::StatusOr<double> OneClientRate(const Serving& serving, Worker& worker) {
  return PumpedRate(worker.session, worker.ops, /*gather=*/true, serving.sizes.warm_up,
                    serving.sizes.duration);
}

double CopiesOf(const Published& weight, int64_t grew_by, int64_t own_bytes) {
  return 1 + static_cast<double>(grew_by - own_bytes) / static_cast<double>(weight.bytes());
}

// Clients of this process, each with one Execute at a time.
absl::Status MeasureClients(const Serving& serving, std::vector<std::unique_ptr<Worker>>& workers,
                            Figure& rate) {
  absl::StatusOr<double> one = OneClientRate(serving, *workers[0]);
  if (!one.ok()) return one.status();
  const auto request = [&](int i) { return workers[i]->session.Execute(workers[i]->ops).status(); };
  const int count = serving.sizes.workers;
  RunLoad({.concurrency = count, .duration = serving.sizes.warm_up}, request);
  const LoadReport all =
      RunLoad({.concurrency = count, .duration = serving.sizes.duration}, request);
  if (!all.first_error.ok()) return all.first_error;
  const double many = static_cast<double>(all.latencies.count()) / all.seconds;
  rate.seen = many / *one;
  rate.detail = {{"requests_per_second", many},
                 {"p50_us", all.latencies.Percentile(50) * 1e6},
                 {"p99_us", all.latencies.Percentile(99) * 1e6},
                 {"one_client_queue_per_second", *one}};
  return absl::OkStatus();
}

// Processes of the Python client. Returns how many copies of the weight they made.
absl::StatusOr<double> MeasurePython(const Serving& serving, const Published& weight, Worker& one,
                                     Figure& rate) {
  absl::StatusOr<double> reference = OneClientRate(serving, one);
  if (!reference.ok()) return reference.status();
  absl::StatusOr<cli::Json> seen = RunPythonBench(
      serving.python, "workers.py",
      {"--server", serving.target, "--device", serving.device, "--values", weight.values(),
       "--scales", weight.scales(), "--rows", absl::StrCat(serving.sizes.unary.m), "--workers",
       absl::StrCat(serving.sizes.workers), "--seconds",
       absl::StrCat(absl::ToDoubleSeconds(serving.sizes.duration))});
  if (!seen.ok()) return seen.status();
  rate.seen = seen->value("queue_per_second", 0.0) / *reference;
  rate.detail = *seen;
  rate.detail["one_client_queue_per_second"] = *reference;
  return CopiesOf(weight, seen->value("used_bytes_grew_by", int64_t{0}),
                  seen->value("workers_own_bytes", int64_t{0}));
}

absl::Status Measure(const Serving& serving, Figure& clients, Figure& python, Figure& copies) {
  absl::StatusOr<std::unique_ptr<Published>> published = Published::Make(serving);
  if (!published.ok()) return published.status();
  serving.session.FlushDeletions();
  absl::StatusOr<int64_t> before = UsedBytes(serving);
  if (!before.ok()) return before.status();
  std::vector<std::unique_ptr<Worker>> workers;
  int64_t own_bytes = 0;
  for (int i = 0; i < serving.sizes.workers; ++i) {
    absl::StatusOr<std::unique_ptr<Worker>> worker = StartWorker(serving, **published);
    if (!worker.ok()) return worker.status();
    own_bytes += (*worker)->own_bytes();
    workers.push_back(*std::move(worker));
  }
  absl::StatusOr<int64_t> after = UsedBytes(serving);
  if (!after.ok()) return after.status();
  copies.seen = CopiesOf(**published, *after - *before, own_bytes);
  copies.detail = {{"weight_bytes", (*published)->bytes()},
                   {"used_bytes_grew_by", *after - *before},
                   {"workers_own_bytes", own_bytes}};
  if (absl::Status status = MeasureClients(serving, workers, clients); !status.ok()) return status;
  absl::StatusOr<double> of_python = MeasurePython(serving, **published, *workers[0], python);
  if (!of_python.ok()) {
    python = Missing(python, of_python.status());
    return absl::OkStatus();
  }
  copies.seen = std::max(*copies.seen, *of_python);
  return absl::OkStatus();
}

}  // namespace

std::vector<Figure> MeasureWorkers(const Serving& serving) {
  const int count = serving.sizes.workers;
  Figure clients = {.key = "workers_over_one_client",
                    .what = absl::StrCat("requests a second of ", count,
                                         " clients by Execute, all on one weight, over one "
                                         "client's Queue"),
                    .wanted = 0.9};
  Figure python = {.key = "python_workers_over_one_client",
                   .what = absl::StrCat("the same of ", count,
                                        " Python processes by Queue, over one C++ client's Queue"),
                   .wanted = 0.9};
  Figure copies = {.key = "weight_copies",
                   .what = "copies of that weight in device memory",
                   .wanted = 1.01,
                   .at_most = true};
  if (absl::Status status = Measure(serving, clients, python, copies); !status.ok()) {
    for (Figure* figure : {&clients, &python, &copies}) {
      if (!figure->seen.has_value()) *figure = Missing(*figure, status);
    }
  }
  return {clients, python, copies};
}

}  // namespace gemmd::bench
