// What `gemmctl matmul` says about what it did.

#pragma once

#include <optional>
#include <string>

#include "client/cli/args/output.h"
#include "client/cli/matmul_job.h"
#include "client/cli/numerics/shape.h"
#include "client/cli/numerics/verify.h"
#include "client/cpp/result.h"

namespace gemmd::cli {

// Owns nothing but the verification.
struct MatmulReport {
  const MatmulShape& shape;
  const MatmulSettings& settings;
  const client::Result& result;
  const MatmulJob& job;
  std::string output;  // the file written; empty: none
  std::optional<Verified> verified;
};

Json ReportJson(const MatmulReport& report);
std::string ReportText(const MatmulReport& report);

// The kernel's: "relative error 1.6e-03 is within the bound 5.0e-03, all 2048 rows checked".
std::string VerifyText(const VerifyReport& report);

}  // namespace gemmd::cli
