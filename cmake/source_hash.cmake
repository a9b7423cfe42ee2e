# Writes OUTPUT, a C++ file that defines KernelSourceHash(): the first 16 digits of the SHA-256 of the names and SHA-256s
# of the files in INPUTS (relative to ROOT, a list). Run by cmake -P at build time, whenever one of them changes.

list(SORT INPUTS)
set(digests "")
foreach(file IN LISTS INPUTS)
  file(SHA256 "${ROOT}/${file}" digest)
  string(APPEND digests "${file} ${digest}\n")
endforeach()
string(SHA256 hash "${digests}")
string(SUBSTRING "${hash}" 0 16 hash)

file(WRITE "${OUTPUT}" "#include \"kernels/cuda/tuning_table.h\"

namespace gemmd::kernels::cuda {

std::string_view KernelSourceHash() { return \"${hash}\"; }

}  // namespace gemmd::kernels::cuda
")
