// SharedLibrary: a library of the CUDA toolkit that is used when the machine has it and done
// without when it has not. Move-only; closes it.

#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gemmd::kernels::cuda {

class SharedLibrary {
 public:
  // The first of `names` that loads, looked for in `folders` (empty ones are skipped) and then in
  // the loader's own places. UNIMPLEMENTED, with the names, when none does.
  static absl::StatusOr<SharedLibrary> Open(const std::vector<std::string>& names,
                                            const std::vector<std::string>& folders) {
    for (const std::string& name : names) {
      for (const std::string& folder : folders) {
        if (folder.empty()) continue;
        if (void* handle = dlopen(absl::StrCat(folder, "/", name).c_str(), RTLD_NOW)) {
          return SharedLibrary(handle);
        }
      }
      if (void* handle = dlopen(name.c_str(), RTLD_NOW)) return SharedLibrary(handle);
    }
    return absl::UnimplementedError(
        absl::StrCat("none of ", absl::StrJoin(names, ", "),
                     " can be loaded; install it or add its folder to LD_LIBRARY_PATH"));
  }

  SharedLibrary(SharedLibrary&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  SharedLibrary& operator=(SharedLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~SharedLibrary() {
    if (handle_ != nullptr) dlclose(handle_);
  }

  // Sets `function` to the symbol. UNIMPLEMENTED when the library is too old to have it.
  template <class Function>
  absl::Status Find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, symbol));
    if (function != nullptr) return absl::OkStatus();
    return absl::UnimplementedError(absl::StrCat("the loaded library has no ", symbol));
  }

  // Leaves the library loaded for the rest of the process.
  void Keep() { handle_ = nullptr; }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}

  void* handle_;
};

}  // namespace gemmd::kernels::cuda
