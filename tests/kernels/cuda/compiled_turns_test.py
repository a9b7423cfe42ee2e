"""What the compiled promotions of gradients and of INT8's block scales must keep: compiled_turns_test.py SCRIPT OBJECT...

SCRIPT is sm90_fp8_hints.py, whose reader of objects this uses.
"""

import importlib.util
import sys
import unittest

HGMMA = 0x9F0  # low 12 bits
LOCAL = (0x983, 0x387, 0x987)  # LDL, STL: registers that were spilled


def load(path):
    spec = importlib.util.spec_from_file_location("hints", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def each_kernel():
    """Those whose warps yield in turns: name and instructions."""
    for path in OBJECTS:
        with open(path, "rb") as file:
            image = bytearray(file.read())
        for name, at, size in HINTS.kernels(image):
            if HINTS.turn_of(name):
                yield name, [HINTS.Instruction(image, at + i) for i in range(0, size, 16)]


class TurnsTest(unittest.TestCase):
    def test_both_kinds_are_there(self):
        kinds = {name >> 62 & 3 for name, _ in each_kernel()}
        self.assertEqual(kinds, {1, 2}, "gradients and INT8 with block scales")

    def test_a_warp_yields_after_a_turn_and_not_before(self):
        for name, code in each_kernel():
            promoting = [x for x in code if x.takes_turns()]
            self.assertGreater(len(promoting), 64, f"{name:#x}")
            yields = [not x.field(45, 1) for x in promoting]
            turn = HINTS.turn_of(name)
            self.assertTrue(all(y == (i % turn == turn - 1) for i, y in enumerate(yields)), f"{name:#x}")

    def test_nothing_is_cached_over_a_yield(self):
        for name, code in each_kernel():
            for x in code:
                if x.takes_turns() and not x.field(45, 1):
                    self.assertEqual(x.field(58, 4), 0, f"{name:#x}")

    def test_no_register_is_spilled(self):
        for name, code in each_kernel():
            lows = [x.low & 0xFFF for x in code]
            if name >> 63 and name >> 56 & 3 == 2:  # FP32, whose kernels finish: see compiled_direct_test.py
                products = [i for i, x in enumerate(lows) if x == HGMMA]
                lows = lows[products[0]:products[-1]]
            self.assertFalse([x for x in lows if x in LOCAL], f"{name:#x}")


if __name__ == "__main__":
    HINTS, OBJECTS = load(sys.argv[1]), sys.argv[2:]
    unittest.main(argv=sys.argv[:1])
