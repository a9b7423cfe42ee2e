"""What the compiled FP8 kernels must keep: compiled_kernels_test.py SCRIPT OBJECT...

SCRIPT is sm90_fp8_hints.py.
"""

import importlib.util
import struct
import sys
import unittest


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
            yield name, [HINTS.Instruction(image, at + i) for i in range(0, size, 16)]


class StartTest(unittest.TestCase):
    """A cold kernel's code comes line by line: the first copies stand in front of everything else.

    Without a word ptxas would put the producer behind the math, where m <= 128 took 7 % longer.
    """

    COPY = 0x5B4  # UTMALDG, low 12 bits
    FRONT = 3 * 1024  # bytes; 2 KiB when this was written

    REGISTERS = 0x9C8  # USETMAXREG

    def places(self, code, opcode):
        return [16 * i for i, x in enumerate(code) if x.low & 0xFFF == opcode]

    def test_the_first_copy_is_in_front(self):
        kernels = 0
        for name, code in each_kernel():
            copies = self.places(code, self.COPY)
            self.assertTrue(copies, f"{name:#x}")
            self.assertLess(copies[0], self.FRONT, f"{name:#x}")
            kernels += 1
        self.assertGreater(kernels, 30)

    def test_registers_move_before_the_first_copy(self):
        """Math warps wait for the producer's: given up behind the copies, they came a microsecond later."""
        moving = 0
        for name, code in each_kernel():
            registers = self.places(code, self.REGISTERS)
            if registers:
                self.assertLess(registers[0], self.places(code, self.COPY)[0], f"{name:#x}")
                moving += 1
        self.assertGreater(moving, 10)


class LoopTest(unittest.TestCase):
    """Between a tiled kernel's products nothing waits for the uniform datapath.

    A vote of all lanes on whether one of them computes an address made 256 x 128 up to 11 % slower; descriptors that
    come from vector registers have to be waited for as well.
    """

    PRODUCT = 0x9F3  # QGMMA, low 12 bits
    VOTE = 0x886  # VOTEU
    TO_UNIFORM = 0x2CA  # R2UR
    LOOP = 200  # instructions; what promotes a product is no further behind it

    def test_no_vote_and_no_move_to_uniform_registers(self):
        kernels = 0
        for name, code in each_kernel():
            if name >> 53 & 1:
                continue  # skinny: code of the store stands between copies of the loop
            product = vote = to_uniform = None  # the last ones before here
            for i, x in enumerate(code):
                opcode = x.low & 0xFFF
                is_product = opcode == self.PRODUCT
                if product is not None and i - product < self.LOOP and (is_product or x.promotes()):
                    self.assertLess(vote or 0, product, f"{name:#x}: a vote before instruction {i}")
                    if is_product:  # behind it there is time
                        self.assertLess(to_uniform or 0, product, f"{name:#x}: before instruction {i}")
                product = i if is_product else product
                vote = i if opcode == self.VOTE else vote
                to_uniform = i if opcode == self.TO_UNIFORM else to_uniform
            self.assertIsNotNone(product, f"{name:#x}")
            kernels += 1
        self.assertGreater(kernels, 15)


class HintsTest(unittest.TestCase):
    """A cached operand stands in for that operand of the next instruction, whatever that is: one hint too many is a wrong
    result, and one too few only slow.
    """

    def test_finds_kernels_in_every_object(self):
        for path in OBJECTS:
            with open(path, "rb") as file:
                self.assertGreater(len(list(HINTS.kernels(bytearray(file.read())))), 1, path)

    def test_a_cached_scale_is_the_next_instructions_scale(self):
        for name, code in each_kernel():
            if not HINTS.group_of(name):
                continue  # ptxas' own hints
            for i, instruction in enumerate(code):
                if instruction.promotes() and instruction.field(58, 4):
                    self.assertTrue(HINTS.same_scale_follows(code, i), f"{name:#x}, instruction {i}")

    def test_runs_of_a_tiled_kernel_mostly_find_their_scale_cached(self):
        for name, code in each_kernel():
            if name >> 63 & 1:
                continue  # scales by row: additions promote
            promoting = [x for x in code if x.promotes()]
            self.assertGreater(len(promoting), 15, f"{name:#x}")
            if HINTS.group_of(name):
                cached = sum(x.field(58, 4) == HINTS.CACHE_B for x in promoting)
                self.assertGreater(cached, len(promoting) / 2, f"{name:#x}")

    def test_a_scale_is_read_when_it_is_there(self):
        """Hints shorten stalls, and ptxas counts on these where a scale's FMUL is close to the FFMA that reads it."""
        for name, code in each_kernel():
            made = {}  # register: when its FMUL was issued
            clock = 0
            for i, instruction in enumerate(code):
                target = instruction.low >> 16 & 0xFF
                if instruction.promotes() and instruction.scale() in made:
                    since = clock - made[instruction.scale()]
                    self.assertGreaterEqual(since, HINTS.FMUL_CLOCKS, f"{name:#x}, instruction {i}")
                made.pop(target, None)
                if instruction.low & 0xFFF == HINTS.FMUL:
                    made[target] = clock
                clock += max(instruction.field(41, 4), 1)

    def test_a_group_ends_with_a_yield(self):
        for name, code in each_kernel():
            longest = HINTS.group_of(name)
            since = 0
            for instruction in code:
                if not longest or not instruction.promotes():
                    since = 0
                    continue
                since += 1
                self.assertLessEqual(since, longest, f"{name:#x}")
                if instruction.field(45, 1) == 0:
                    since = 0


class PromotionsTest(unittest.TestCase):
    """What is arithmetic of results, and not a promotion, keeps ptxas' stalls: it reads what was made just in front."""

    FMUL, LOAD = 0x7220, 0x7981

    def made(self, opcode, target, product=0xFF, scale=0xFF, addend=0xFF):
        low = opcode | target << 16 | product << 24 | scale << 32
        high = addend | (HINTS.NO_BARRIER << 3 | HINTS.NO_BARRIER) << 46 | 2 << 41
        return HINTS.Instruction(struct.pack("<QQ", low, high), 0)

    def promotion(self, count):
        return [self.made(HINTS.FFMA, i, 100 + i, 99, i) for i in range(count)]

    def test_a_loops_ffmas_promote(self):
        self.assertEqual(HINTS.promotions(self.promotion(32)), list(range(32)))

    def test_few_do_not(self):
        self.assertEqual(HINTS.promotions(self.promotion(HINTS.FEWEST - 1)), [])

    def test_a_quotient_and_its_correction_do_not(self):
        for opcode in (self.FMUL, self.LOAD):
            code = []
            for i in range(32):
                code += [self.made(opcode, i), self.made(opcode, 100 + i)] + self.promotion(32)[i:i + 1]
            self.assertEqual(HINTS.promotions(code), [])


if __name__ == "__main__":
    HINTS, OBJECTS = load(sys.argv[1]), sys.argv[2:]
    unittest.main(argv=sys.argv[:1])
