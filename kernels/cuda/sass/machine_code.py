"""Reads the machine code of kernels out of whatever holds it: objects, archives, linked binaries.

Device code lies in them as whole ELF files, one for each .cu, unless nvcc compressed it (--no-compress keeps it from doing so).
Needs no tool of the toolkit, so that a test runs wherever the build did.
"""

import dataclasses
import hashlib
import re
import struct

CUDA_MACHINE = 190  # e_machine of an ELF file with device code
INSTRUCTION_BYTES = 16
PARAMETERS_AT = 0x210  # in constant bank 0, sm_90: below lies what the driver fills in
BAR = 0xB1D  # low 12 bits; has the bits of an instruction that reads a constant, and reads none
CONSTANT_FORMS = (3, 5)  # bits 9 to 11: a constant in place of the second or third operand
OFFSET_BITS = 0xFFFF << 38  # in the low half: the offset into the bank, in bytes
UNNAMED = re.compile(r"\d+_GLOBAL__N__[0-9a-f]{8}_\d+_(\w+?_cu)_[0-9a-f]{8}")  # a namespace; the hashes are of paths and text
COMPILER = re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)")


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str  # mangled; the unnamed namespace of a file as "(quantize_cu)"
    code: bytes
    compiler: str  # of ptxas: "13.0.88"

    def instructions(self):
        """Low and high half of each, with what may move without being another instruction set to zero."""
        for low, high in struct.iter_unpack("<QQ", self.code):
            yield masked(low), high

    def digest(self):
        text = b"".join(struct.pack("<QQ", low, high) for low, high in self.instructions())
        return hashlib.sha256(text).hexdigest()[:16]


def masked(low):
    """Parameters move when a struct of arguments changes, addresses of variables with every link."""
    if low >> 9 & 7 not in CONSTANT_FORMS or low & 0xFFF == BAR:
        return low
    bank, offset = low >> 54 & 0x1F, low >> 38 & 0xFFFF
    moves = bank == 4 or (bank == 0 and offset >= PARAMETERS_AT)
    return low & ~OFFSET_BITS if moves else low


def kernels(image):
    """Every kernel in the bytes of a file, in the order in which they lie there."""
    for found in re.finditer(rb"\x7fELF\x02", image):
        elf = found.start()
        if elf + 64 > len(image) or struct.unpack_from("<H", image, elf + 18)[0] != CUDA_MACHINE:
            continue
        sections = list(_sections(image, elf))
        compiler = ""
        for name, start, size in sections:
            if name == ".note.nv.tkinfo":
                version = COMPILER.search(image[start:start + size])
                compiler = version[1].decode() if version else ""
        for name, start, size in sections:
            if name.startswith(".text."):
                yield Kernel(UNNAMED.sub(r"(\1)", name[len(".text."):]), bytes(image[start:start + size]), compiler)


def _sections(image, elf):
    table = elf + struct.unpack_from("<Q", image, elf + 40)[0]
    entry_size, count, names = struct.unpack_from("<HHH", image, elf + 58)
    rows = [struct.unpack_from("<IIQQQQ", image, table + i * entry_size) for i in range(count)]
    strings = elf + rows[names][4]
    for name_at, _, _, _, offset, size in rows:
        name = image[strings + name_at:image.index(b"\0", strings + name_at)].decode()
        yield name, elf + offset, size


def kernels_of(paths):
    """By name, of all the files. A kernel that lies in several of them lies there alike, or ValueError says where not."""
    found = {}
    for path in paths:
        with open(path, "rb") as file:
            image = file.read()
        for kernel in kernels(image):
            earlier = found.setdefault(kernel.name, kernel)
            if earlier.digest() != kernel.digest():
                raise ValueError(f"{path}: {kernel.name} is another kernel than in a file before it")
    return found
