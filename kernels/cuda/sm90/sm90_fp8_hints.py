#!/usr/bin/env python3
"""Compiles the FP8 kernels and sets the scheduling hints of their promotion.

    sm90_fp8_hints.py COMMAND...       runs a compiler command, then rewrites the object that its -o names
    sm90_fp8_hints.py --show OBJECT    prints a line for each kernel of an object: its code, FFMAs, those with a cached scale

Promotion is runs of FFMAs: result += product * scale. Each reads three registers, and the tensor core of the same quarter
of the SM reads its accumulators through the same ports. Of ptxas' FFMAs every second one takes the scale from the operand
cache (.reuse); at the others the warp yields, which empties that cache. Here the tiled family's runs are divided into
groups: within one the scale stays cached and the warp goes on; at its end the warp yields, so that the next WGMMA of
another warp waits for no more than a group. docs/lab/kernels.md has what that brings.

A gradient's promotion has an FMUL beside each FFMA, and that of INT8's block scales a conversion. There only the yields are
set, at every so many instructions.

Arithmetic of results has FFMAs of the same form, a division's and an activation's: those follow what they read at the least
distance, and ptxas' hints, which see to that, stay.

An instruction of sm_90 has 128 bits. From bit 105 on they are hints: 4 of clocks to stall, 1 that is 0 to yield, 3 and 3
of barriers to set, 6 of barriers to wait for, 4 of operands to cache. What is cached stands in for that operand of the
warp's next instruction, whatever register that names, so only a next FFMA by the same scale makes it right.
"""

import re
import struct
import subprocess
import sys

CUDA_MACHINE = 190  # e_machine of an ELF file with device code
FFMA = 0x7223  # d = a * b + c, all in registers, without a predicate
FMUL = 0x220  # d = a * b, low 12 bits: makes a scale
FMUL_CLOCKS = 4  # until its result may be read
NO_BARRIER = 7
CACHE_B = 2
I2FP = 0x245  # a 32-bit integer to FP32
MAKERS = (0x008, 0x009, 0x020, 0x021, 0x023, 0x181, 0x184)  # FSEL, FMNMX, FMUL, FADD, FFMA, LDG, LDS: low 9 bits of any form
NEAR = 48  # instructions in front of one that reads it; what promotion reads is older by far
FEWEST = 16  # of a loop's promotion
GAP = 5  # instructions of other kinds that a run may have between two FFMAs


class Instruction:
    def __init__(self, code, at):
        self.at = at
        self.low, self.high = struct.unpack_from("<QQ", code, at)

    def field(self, shift, bits):
        return self.high >> shift & ((1 << bits) - 1)

    def promotes(self):
        """Adds to its own target, sets no barrier, and need not stall for what follows."""
        return (self.low & 0xFFFF == FFMA and self.high & 0xFF == self.target() and self.field(8, 33) == 0
                and self.field(46, 6) == NO_BARRIER << 3 | NO_BARRIER and self.field(41, 4) <= 2)

    def product(self):
        return self.low >> 24 & 0xFF

    def target(self):
        return self.low >> 16 & 0xFF

    def makes_number(self):
        return self.low & 0x1FF in MAKERS

    def takes_turns(self):
        """Belongs to a promotion of more than FFMAs, and need not stall for what follows."""
        kind, unguarded = self.low & 0xFFF, self.low >> 12 & 0xF == 7
        return kind in (FFMA & 0xFFF, FMUL, I2FP) and unguarded and self.field(41, 4) <= 2

    def scale(self):
        return self.low >> 32 & 0xFF

    def set_hints(self, yields, cached, stall):
        self.high &= ~(0x1F << 41 | 0xF << 58)
        self.high |= stall << 41 | (not yields) << 45 | cached << 58


def kernels(image):
    """Name, offset and size of the code of each FP8 kernel in the device files that the object holds."""
    for found in re.finditer(rb"\x7fELF\x02", image):
        elf = found.start()
        if struct.unpack_from("<H", image, elf + 18)[0] != CUDA_MACHINE:
            continue
        table = elf + struct.unpack_from("<Q", image, elf + 40)[0]
        entry_size, count, names = struct.unpack_from("<HHH", image, elf + 58)
        sections = [struct.unpack_from("<IIQQQQ", image, table + i * entry_size) for i in range(count)]
        strings = elf + sections[names][4]
        for name_at, _, _, _, offset, size in sections:
            name = image[strings + name_at:image.index(b"\0", strings + name_at)].decode()
            kernel = re.fullmatch(
                r"\.text\.\w*(?:4cuda4Gemm|10GemmStream|10Fp8Grouped|9Fp8Ragged|8Fp8Pairs|7Fp8Gate|12Fp8GateAlone|11Fp8Gradient)ILm(\d+)E\w*", name)
            if kernel:
                yield int(kernel.group(1)), elf + offset, size


def group_of(code):
    """How many FFMAs a group has, by the kernel's config as GemmConfig's Encode() writes it; 0: ptxas' hints stay."""
    rows, cols = code >> 9 & 0x1FF, code & 0x1FF
    if is_skinny(code) or turn_of(code):
        return 0  # a scale for each pair of columns, or for one instruction in two: nothing to cache
    return 6 if rows > 128 or cols == 256 else 4  # two chains a k block


def is_skinny(code):
    return code >> 53 & 1


def turn_of(code):
    """How many instructions of a promotion that is more than FFMAs a warp issues before it yields; 0: ptxas' hints stay.

    Of a gradient's FMULs ptxas lets a warp issue dozens, of INT8's conversions all, and another warp's WGMMA waits.
    """
    columns_scaled, block_of_int8 = code >> 62 & 1, code >> 63 & 1
    if columns_scaled:
        return 4
    if block_of_int8 and not is_skinny(code):
        return 4 if code >> 9 & 0x1FF > 128 else 8
    return 0


def set_turns(image, at, size, turn):
    place = 0
    for i in range(0, size, 16):
        x = Instruction(image, at + i)
        if not x.takes_turns():
            continue
        place += 1
        yields = place % turn == 0
        x.set_hints(yields, 0 if yields else x.field(58, 4), x.field(41, 4))
        struct.pack_into("<Q", image, x.at + 8, x.high)


def set_hints(image, at, size, group):
    code = [Instruction(image, at + i) for i in range(0, size, 16)]
    place, last = 0, -GAP
    for i in promotions(code):
        place = place + 1 if i - last <= GAP else 1
        last = i
        yields = place % group == 0
        stall = code[i].field(41, 4) if may_be_counted_on(code, i) else 1
        caches = not yields and same_scale_follows(code, i)
        code[i].set_hints(yields, CACHE_B if caches else 0, stall)
        struct.pack_into("<Q", image, code[i].at + 8, code[i].high)


def promotions(code):
    """Indices of the FFMAs that promote: many together, whose product and target were not made just in front."""
    runs = [[]]
    for i, x in enumerate(code):
        reads = (x.product(), x.target())
        if not x.promotes() or any(
                y.makes_number() and not y.promotes() and y.target() in reads for y in code[max(i - NEAR, 0):i]):
            continue
        if runs[-1] and i - runs[-1][-1] > NEAR:
            runs.append([])
        runs[-1].append(i)
    return [i for run in runs if len(run) >= FEWEST for i in run]


def same_scale_follows(code, i):
    return i + 1 < len(code) and code[i + 1].promotes() and code[i + 1].scale() == code[i].scale()


def may_be_counted_on(code, i):
    """Whether ptxas may have made this stall for a scale that is still being multiplied."""
    return any(x.low & 0xFFF == FMUL for x in code[max(i - FMUL_CLOCKS + 1, 0):i])


def show(image):
    for kernel, at, size in kernels(image):
        code = [Instruction(image, at + i) for i in range(0, size, 16)]
        promoting = [code[i] for i in promotions(code)]
        print(f"{kernel:#x}: {len(promoting)} FFMAs promote, {sum(x.field(58, 4) == CACHE_B for x in promoting)} cached")


def rewrite(path):
    with open(path, "rb") as file:
        image = bytearray(file.read())
    found = list(kernels(image))
    if not found:
        sys.exit(f"sm90_fp8_hints.py: {path} holds no FP8 kernel that can be read; is it compiled with --no-compress?")
    for kernel, at, size in found:
        if group_of(kernel):
            set_hints(image, at, size, group_of(kernel))
        elif turn_of(kernel):
            set_turns(image, at, size, turn_of(kernel))
    with open(path, "wb") as file:
        file.write(image)


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    if arguments[0] == "--show":
        with open(arguments[1], "rb") as file:
            show(bytearray(file.read()))
        return
    done = subprocess.run(arguments)
    if done.returncode:
        sys.exit(done.returncode)
    if "-o" in arguments:
        target = arguments[arguments.index("-o") + 1]
        if target.endswith(".o"):
            rewrite(target)


if __name__ == "__main__":
    main(sys.argv[1:])
