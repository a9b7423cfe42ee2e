#include "client/cli/files/npy.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "status/propagate.h"

namespace gemmd::files {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kAlignment = 64;  // what numpy pads a header to
constexpr int64_t kMaxHeaderBytes =
    65536;  // numpy refuses 10,000; a list of 32 extents takes under 1,000

absl::Status Bad(std::string message) { return absl::InvalidArgumentError(message); }

// What a descr such as "<f4" means. The first character is the byte order; '|' and '=' are as good
// as '<' here.
absl::StatusOr<DType> DTypeOf(absl::string_view descr, std::optional<DType> opaque_as) {
  const std::string shown = absl::CHexEscape(descr.substr(0, 32));
  if (descr.size() < 3) return Bad(absl::StrCat("descr '", shown, "' is no element type"));
  const absl::string_view type = descr.substr(1);
  if (descr[0] == '>' && type != "i1" && type != "V1" && type != "f1") {
    return Bad(
        absl::StrCat("descr '", shown, "' is big-endian; save it with a.astype('<", type, "')"));
  }
  if (type == "f4") return DType::kF32;
  if (type == "f2") return DType::kF16;
  if (type == "f8") return DType::kF64;
  if (type == "i1") return DType::kI8;
  // numpy has no BF16 or FP8: ml_dtypes' arrays are saved as opaque bytes ("f1" by its older
  // versions).
  const bool two_bytes = type == "V2";
  if (two_bytes || type == "V1" || type == "f1") {
    if (!opaque_as) {
      return Bad(absl::StrCat(
          "descr '", shown, "' is ", two_bytes ? 2 : 1,
          " opaque bytes an element, as numpy saves types it has no name for; say which with ",
          two_bytes ? "--dtype bf16" : "--dtype e4m3 or e5m2", ", or use .safetensors"));
    }
    if (ElementSize(*opaque_as) != (two_bytes ? 2 : 1)) {
      return Bad(absl::StrCat("descr '", shown, "' has ", two_bytes ? 2 : 1,
                              "-byte elements, but --dtype ", DTypeName(*opaque_as), " has ",
                              ElementSize(*opaque_as)));
    }
    return *opaque_as;
  }
  return Bad(absl::StrCat(
      "element type '", shown,
      "' is not multiplied; float32, float16, int8, float64 (narrowed to float32), and bfloat16, "
      "float8_e4m3fn and float8_e5m2 of ml_dtypes are: save it with a.astype('float32'), where "
      "float32 has its "
      "numbers (integers up to 2**24)"));
}

uint32_t LittleEndian(absl::Span<const std::byte> bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= std::to_integer<uint32_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace

absl::StatusOr<NpyView> ParseNpy(absl::Span<const std::byte> file, std::optional<DType> opaque_as) {
  if (file.size() < 10) {
    return Bad(absl::StrCat("the file has ", file.size(),
                            " bytes, a .npy file at least 10: it is cut short"));
  }
  if (std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return Bad(
        "it does not begin with \\x93NUMPY: not a .npy file (a .npz must be unpacked first)");
  }
  const int version = std::to_integer<int>(file[6]);
  if (version < 1 || version > 3) {
    return Bad(
        absl::StrCat("format version ", version, " is not known; save it as version 1, 2 or 3"));
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  const size_t header_at = 8 + length_bytes;
  if (file.size() < header_at)
    return Bad("the file ends inside the header's length: it is cut short");
  const int64_t header_bytes = LittleEndian(file.subspan(8, length_bytes));
  if (header_bytes > kMaxHeaderBytes) {
    return Bad(absl::StrCat("the header claims ", header_bytes, " bytes, at most ", kMaxHeaderBytes,
                            " are read; the file is damaged or no plain array"));
  }
  if (header_bytes > static_cast<int64_t>(file.size() - header_at)) {
    return Bad(absl::StrCat("the header claims ", header_bytes, " bytes, the file has ",
                            file.size() - header_at, " left: it is cut short"));
  }
  GEMMD_ASSIGN_OR_RETURN(
      internal::NpyDict dict,
      internal::ParseNpyDict(
          absl::string_view(reinterpret_cast<const char*>(file.data()) + header_at, header_bytes)));
  GEMMD_ASSIGN_OR_RETURN(DType dtype, DTypeOf(dict.descr, opaque_as));
  GEMMD_ASSIGN_OR_RETURN(int64_t wanted, DenseBytes(dict.shape, ElementSize(dtype)));
  const int64_t present = file.size() - header_at - header_bytes;
  if (wanted != present) {
    return Bad(absl::StrCat(
        "shape ", ShapeText(dict.shape), " of ", DTypeName(dtype), " takes ", wanted,
        " bytes, the file has ", present, " after its header: ",
        present < wanted ? "it is cut short" : "it holds more than one array, or its header lies"));
  }
  return NpyView{.dtype = dtype,
                 .shape = std::move(dict.shape),
                 .fortran_order = dict.fortran_order,
                 .data = file.subspan(header_at + header_bytes)};
}

std::string NpyHeader(DType dtype, std::span<const int64_t> shape) {
  absl::string_view descr;
  switch (dtype) {
    case DType::kF32:
      descr = "<f4";
      break;
    case DType::kF16:
      descr = "<f2";
      break;
    case DType::kF64:
      descr = "<f8";
      break;
    case DType::kI8:
      descr = "|i1";
      break;
    case DType::kBf16:
      descr = "<V2";
      break;  // as numpy saves ml_dtypes.bfloat16
    case DType::kE4m3:
    case DType::kE5m2:
      descr = "<V1";  // as numpy saves ml_dtypes.float8_e4m3fn and float8_e5m2
      break;
  }
  std::string extents;
  for (int64_t extent : shape) absl::StrAppend(&extents, extent, shape.size() == 1 ? "," : ", ");
  if (shape.size() > 1) extents.resize(extents.size() - 2);
  std::string dict =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", extents, "), }");
  const size_t unpadded = 10 + dict.size() + 1;
  dict.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dict.push_back('\n');
  std::string header(kMagic);
  header.append({'\x01', '\x00'});
  header.push_back(static_cast<char>(dict.size() & 0xff));
  header.push_back(static_cast<char>(dict.size() >> 8));
  return header + dict;
}

}  // namespace gemmd::files
