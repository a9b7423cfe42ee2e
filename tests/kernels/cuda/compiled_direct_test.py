"""What the compiled BF16, FP16, INT8, row-scaled FP8 and FP32 kernels must keep: compiled_direct_test.py SCRIPT OBJECT...

SCRIPT is sm90_fp8_hints.py, whose reader of objects this uses.
"""

import importlib.util
import sys
import unittest

HGMMA, IGMMA, QGMMA = 0x9F0, 0x9F1, 0x9F3  # low 12 bits
COPY, REGISTERS = 0x5B4, 0x9C8  # UTMALDG, USETMAXREG
LOCAL = (0x983, 0x387, 0x987)  # LDL, STL: registers that were spilled
F32 = 6
INSTRUCTION = {1: HGMMA, 2: HGMMA, 3: IGMMA, 4: IGMMA, 5: QGMMA, 6: HGMMA}  # by GemmConfig::mma


def load(path):
    spec = importlib.util.spec_from_file_location("hints", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def each_kernel():
    for path in OBJECTS:
        with open(path, "rb") as file:
            image = bytearray(file.read())
        for name, at, size in HINTS.kernels(image):
            yield name, [HINTS.Instruction(image, at + i).low & 0xFFF for i in range(0, size, 16)]


def kind_of(name):
    """GemmConfig::mma."""
    return name >> 56 & 3 | (name >> 63 & 1) << 2


class DirectTest(unittest.TestCase):
    def test_every_kind_multiplies_by_its_tensor_core_instruction(self):
        kinds = {}
        for name, code in each_kernel():
            kind = kind_of(name)
            self.assertIn(INSTRUCTION[kind], code, f"{name:#x}")
            kinds[kind] = kinds.get(kind, 0) + 1
        self.assertEqual(set(kinds), {1, 2, 3, 4, 5, 6})
        self.assertEqual(kinds[1], kinds[2], "FP16 has BF16's configs")

    def test_no_register_is_spilled(self):
        for name, code in each_kernel():
            if kind_of(name) == F32:  # these finish, too, and a GELU there has no register to spare
                products = [i for i, x in enumerate(code) if x == HGMMA]
                code = code[products[0]:products[-1]]
            self.assertFalse([x for x in code if x in LOCAL], f"{name:#x}")

    def test_the_first_copy_is_in_front_and_registers_move_before_it(self):
        for name, code in each_kernel():
            self.assertLess(16 * code.index(COPY), 3 * 1024, f"{name:#x}")
            if REGISTERS in code:
                self.assertLess(code.index(REGISTERS), code.index(COPY), f"{name:#x}")


if __name__ == "__main__":
    HINTS, OBJECTS = load(sys.argv[1]), sys.argv[2:]
    unittest.main(argv=sys.argv[:1])
