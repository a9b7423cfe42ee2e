"""What the compiled stream-k kernels must keep: compiled_stream_test.py FOLDER_OF_MACHINE_CODE OBJECT..."""

import re
import struct
import sys
import unittest

HGMMA, QGMMA, COPY, REGISTERS = 0x9F0, 0x9F3, 0x5B4, 0x9C8  # low 12 bits; UTMALDG, USETMAXREG
LOCAL = (0x983, 0x387, 0x987)  # LDL, STL: registers that were spilled
STREAM = re.compile(r"10GemmStreamILm(\d+)E")
FP8 = (0, 5)


def kind_of(config):
    """GemmConfig::mma."""
    return config >> 56 & 3 | (config >> 63 & 1) << 2


class StreamTest(unittest.TestCase):
    def setUp(self):
        self.kernels = {}
        for name, kernel in machine_code.kernels_of(OBJECTS).items():
            config = STREAM.search(name)
            if config:
                self.kernels[int(config[1])] = [low & 0xFFF for low, _ in struct.iter_unpack("<QQ", kernel.code)]

    def test_both_types_have_the_same_configs(self):
        kinds = {}
        for config in self.kernels:
            kinds[kind_of(config)] = kinds.get(kind_of(config), 0) + 1
        self.assertEqual(set(kinds), {*FP8, 1, 2}, "E4M3 of both kinds, BF16 and FP16")
        self.assertEqual(kinds[1], kinds[2])

    def test_tensor_cores_multiply_and_no_register_is_spilled(self):
        for config, code in self.kernels.items():
            self.assertIn(QGMMA if kind_of(config) in FP8 else HGMMA, code, f"{config:#x}")
            self.assertFalse([x for x in code if x in LOCAL], f"{config:#x}")

    def test_registers_move_before_the_first_copy(self):
        for config, code in self.kernels.items():
            self.assertLess(code.index(REGISTERS), code.index(COPY), f"{config:#x}")


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import machine_code

    OBJECTS = sys.argv[2:]
    unittest.main(argv=sys.argv[:1])
