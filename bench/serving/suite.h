// `gemmd_bench serving`: what calling the daemon costs over calling its kernels, each
// figure beside the floor that was measured in the same run.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/floor/echo_client.h"
#include "bench/floor/run_python.h"
#include "bench/load/resident.h"
#include "bench/serving/figure.h"
#include "bench/serving/sizes.h"
#include "client/cpp/client.h"

namespace gemmd::bench {

// What the measurements share. Owns nothing.
struct Serving {
  client::Client& client;
  client::Session& session;  // on the device under test
  EchoClient& echo;
  const ServingSizes& sizes;
  std::string target;                      // the daemon's
  client::ClientOptions options;           // of further connections
  std::string device;                      // under test
  std::vector<std::string> other_devices;  // of the daemon, of the same model
  std::string share_socket;
  // Listeners of two tenants of equal weight; empty: not given.
  std::string small_target;
  std::string large_target;
  PythonClient python;
  std::string only;                                  // measures the groups whose names contain it
  absl::Duration lookahead = absl::Milliseconds(2);  // scheduler.lookahead_us
};

// Why figures of two devices are missing.
absl::Status NoSecondDevice(const Serving& serving);

// A matmul in FP8 with block scales and a BF16 result.
ResidentSpec Fp8Spec(const MatmulSize& size);

// Each group is one file. What fails in it is a missing figure, not an error.
std::vector<Figure> MeasureUnary(const Serving& serving);       // one matmul, resident and inline
std::vector<Figure> MeasureQueue(const Serving& serving);       // busy share and message rate
std::vector<Figure> MeasurePlan(const Serving& serving);        // a decode step against its kernels
std::vector<Figure> MeasureBulk(const Serving& serving);        // uploads
std::vector<Figure> MeasureDevices(const Serving& serving);     // two against one, all beside each
std::vector<Figure> MeasureDeviceCopy(const Serving& serving);  // from one to another
std::vector<Figure> MeasureTenants(const Serving& serving);     // equal shares, bounded waits
std::vector<Figure> MeasureWorkers(const Serving& serving);     // one weight, many clients

// All of them that `only` lets through, in this order. `announce` is told what is being measured.
std::vector<Figure> MeasureServing(const Serving& serving,
                                   const std::function<void(const std::string&)>& announce);

}  // namespace gemmd::bench
