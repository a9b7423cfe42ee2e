// A stand-in for a profiler: NVTX loads it because NVTX_INJECTION64_PATH names it, and it writes
// down what it is told.

#include <nvtx3/nvToolsExt.h>

#include <string>

namespace {

std::string& Log() {
  static std::string log;
  return log;
}

struct FakeDomain {
  std::string name;
};

nvtxDomainHandle_t CreateDomain(const char* name) {
  Log() += std::string("domain ") + name + "\n";
  return reinterpret_cast<nvtxDomainHandle_t>(new FakeDomain{name});
}

int Push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  Log() += reinterpret_cast<FakeDomain*>(domain)->name + ": push " + event->message.ascii + ", " +
           std::to_string(event->payload.ullValue) + "\n";
  return 0;
}

int Pop(nvtxDomainHandle_t domain) {
  Log() += reinterpret_cast<FakeDomain*>(domain)->name + ": pop\n";
  return 0;
}

}  // namespace

extern "C" {

const char* FakeNvtxLog() { return Log().c_str(); }

// What NVTX looks for in an injected library. 1: it is in place.
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(CreateDomain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(Push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(Pop);
  return 1;
}

}  // extern "C"
