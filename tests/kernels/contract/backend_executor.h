// A Backend in this process as the contract suite's subject.

#pragma once

#include "kernels/backend.h"
#include "tests/kernels/contract/executor.h"

namespace gemmd::kernels::contract {

// Any Backend: allocates the slots, validates, compiles, launches on one stream, copies out. With
// another one as `far`, slots that only Copy ops read or that only matmuls write lie there.
std::unique_ptr<Executor> MakeBackendExecutor(std::unique_ptr<Backend> backend,
                                              std::unique_ptr<Backend> far = nullptr);

}  // namespace gemmd::kernels::contract
