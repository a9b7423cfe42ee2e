// The PEM files of TlsOptions, looked at before gRPC gets them: what is wrong with one shows there
// as a connection that never stands.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/options.h"

namespace gemmd::client {

// NOT_FOUND or PERMISSION_DENIED for a file that cannot be read, INVALID_ARGUMENT for one that is
// not what it is given as, a certificate without its key, or a key of another certificate (which a
// renewal under way is given half a second to put right).
absl::Status CheckTlsFiles(const TlsOptions& tls);

// When the first certificate of the file ends; the same errors.
absl::StatusOr<absl::Time> EndOfCertificate(const std::string& file);

}  // namespace gemmd::client
