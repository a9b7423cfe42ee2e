// The NUMA node of the host that a GPU hangs on, and doing things there: what a GPU copies to and
// from another node's memory crosses the link between the processors as well.
//
//   const HostNode node = FindHostNode("0000:1B:00.0", UsableCpus());
//   RunOnNode(node, [&] { cudaHostAlloc(...); }).IgnoreError();

#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd::kernels::cuda {

struct HostNode {
  int node = -1;          // -1: none, and then there are no cpus
  std::vector<int> cpus;  // of the node, that this process may use; ascending
};

// What the calling thread may run on, of the first CPU_SETSIZE (1024) cpus; ascending. Empty when
// the system does not tell.
std::vector<int> UsableCpus();

// The node of the device at `pci_bus_id`, "0000:1b:00.0" in either case, and those of its cpus that
// are among `usable`, which ascend. None when the machine tells none, as one with a single node
// may, when none of the node's cpus is usable, and when what is read there makes no sense.
// `sysfs` is where the kernel's is mounted.
HostNode FindHostNode(absl::string_view pci_bus_id, const std::vector<int>& usable,
                      const std::string& sysfs = "/sys");

// Binds the calling thread to the node's cpus, for good; threads that it starts are bound too. Does
// nothing without a node. FAILED_PRECONDITION when the system refuses; the thread is as before.
absl::Status BindToNode(const HostNode& node);

// Runs `work` on a thread of the node and waits for it. Memory that `work` is the first to touch,
// or that the kernel allocates for it, then lies on the node unless that is full; this needs no
// right, whereas containers are commonly refused set_mempolicy. The calling thread's own binding
// stays as it is: put back, it would no longer follow changes of the process's cpuset.
//
// `work` runs in any case: unbound when binding fails, and here when there is no node or no thread
// to be had. The status is the binding's.
absl::Status RunOnNode(const HostNode& node, absl::FunctionRef<void()> work);

}  // namespace gemmd::kernels::cuda
