#include "server/engine/sessions/kept_program.h"

#include <algorithm>

#include "server/engine/scheduling/device.h"
#include "server/engine/sessions/host_bytes.h"

namespace gemmd::server {

namespace {

bool SameKernels(const kernels::Program& x, const kernels::Program& y) {
  return std::equal(
      x.steps().begin(), x.steps().end(), y.steps().begin(), y.steps().end(),
      [](const auto& a, const auto& b) { return a.choice.kernel == b.choice.kernel; });
}

// What keeping them takes, with what tables of matrices hold beside them.
int64_t BytesOf(absl::Span<const kernels::Op> ops) {
  size_t bytes = ops.size() * sizeof(kernels::Op);
  for (const kernels::Op& op : ops) {
    const auto* grouped = std::get_if<kernels::GroupedMatmulOp>(&op);
    if (grouped != nullptr) bytes += grouped->table.size() * sizeof(kernels::Operand);
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

void RenewableProgram::Renew(kernels::Backend& backend) {
  auto compiled = backend.Compile(ops_);
  if (!compiled.ok()) return;
  // The old one remembers its launches and graphs.
  if (SameKernels(**compiled, *Get())) return;
  auto charged = ChargedProgram(tenant_, *std::move(compiled));
  if (!charged.ok()) return;
  std::shared_ptr<const kernels::Program> program = *std::move(charged);
  absl::MutexLock lock(&mutex_);
  program_.swap(program);
}  // the old one goes without the lock

void RenewablePrograms::Add(const std::shared_ptr<RenewableProgram>& program) {
  absl::MutexLock lock(&mutex_);
  if (programs_.size() >= sweep_at_) {
    programs_.erase(std::remove_if(programs_.begin(), programs_.end(),
                                   [](const auto& known) { return known.expired(); }),
                    programs_.end());
    sweep_at_ = std::max<size_t>(64, 2 * programs_.size());
  }
  programs_.push_back(program);
}

void RenewablePrograms::RenewAll(kernels::Backend& backend) {
  Programs programs;
  {
    absl::MutexLock lock(&mutex_);
    programs = programs_;
  }
  for (const std::weak_ptr<RenewableProgram>& known : programs) {
    if (const auto program = known.lock()) program->Renew(backend);
  }
}

size_t RenewablePrograms::size() const {
  absl::MutexLock lock(&mutex_);
  return programs_.size();
}

KeptProgram KeepProgram(Tenant& tenant, Device& device, absl::Span<const kernels::Op> ops,
                        std::shared_ptr<const kernels::Program> program) {
  if (program->tunable().empty()) return KeptProgram(std::move(program));
  auto charge = tenant.TakeHostBytes(BytesOf(ops));
  if (!charge.ok()) return KeptProgram(std::move(program));
  auto renewable =
      std::make_shared<RenewableProgram>(std::vector<kernels::Op>(ops.begin(), ops.end()),
                                         *std::move(charge), tenant, std::move(program));
  device.renewable().Add(renewable);
  return KeptProgram(std::move(renewable));
}

}  // namespace gemmd::server
