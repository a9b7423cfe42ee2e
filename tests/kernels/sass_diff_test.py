"""What sass_diff.py calls the same and what not, on device files made up here: sass_diff_test.py FOLDER"""

import contextlib
import io
import json
import os
import struct
import sys
import tempfile
import unittest

EXIT = 0x794D, 0x000FEA0003800000
PARAMETER = 0x00008400FF017B82, 0x000E220000000A00  # LDC R1, c[0x0][0x210]
LATER_PARAMETER = 0x00009400FF017B82, 0x000E220000000A00  # c[0x0][0x250]
OF_THE_DRIVER = 0x00000A00FF017B82, 0x000FE20000000800  # LDC R1, c[0x0][0x28]
ADDRESS = 0x01000000FF027B82, 0x000E220000000A00  # LDC R2, c[0x4][0x0]
LATER_ADDRESS = 0x01000400FF027B82, 0x000E220000000A00  # c[0x4][0x10]
BARRIER = 0x0040000000007B1D, 0x000FEC0000010000  # BAR.SYNC 0x1
OF_128_THREADS = 0x0040080000007B1D, 0x000FEC0000010000
FADD = 0x0000000502027221, 0x000FE20000000000
YIELDING_FADD = 0x0000000502027221, 0x000FC20000000000


def device_file(kernels, compiler="13.0.88"):
    """An ELF file as ptxas writes it, with a section of code for each kernel."""
    note = b"\0ptxas\0Cuda compilation tools, release 13.0, V" + compiler.encode() + b"\0"
    sections = [("", b""), (".note.nv.tkinfo", note)]
    sections += [(f".text.{name}", b"".join(struct.pack("<QQ", *x) for x in code)) for name, code in kernels.items()]
    names = b"\0".join(name.encode() for name, _ in sections) + b"\0.shstrtab\0"
    sections.append((".shstrtab", names))
    body, rows, at = b"", b"", 64
    for name, data in sections:
        found = names.index(name.encode() + b"\0")
        rows += struct.pack("<IIQQQQIIQQ", found, 1, 0, 0, at + len(body), len(data), 0, 0, 16, 0)
        body += data
    head = bytearray(64)
    head[:5] = b"\x7fELF\x02"
    struct.pack_into("<H", head, 18, 190)
    struct.pack_into("<Q", head, 40, at + len(body))
    struct.pack_into("<HHH", head, 58, 64, len(sections), len(sections) - 1)
    return bytes(head) + body + rows


class SassDiffTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, *images):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as file:
            file.write(b"host code" + b"between".join(images))
        return path

    def run_main(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = sass_diff.main(list(arguments))
        return code, out.getvalue()

    def diff(self, old, new):
        return self.run_main(self.file("old.o", device_file({"k": old})), self.file("new.o", device_file({"k": new})))

    def test_the_same_instructions_are_the_same(self):
        self.assertEqual(self.diff([PARAMETER, EXIT], [PARAMETER, EXIT])[0], 0)

    def test_a_parameter_or_address_elsewhere_is_the_same(self):
        self.assertEqual(self.diff([PARAMETER, EXIT], [LATER_PARAMETER, EXIT])[0], 0)
        self.assertEqual(self.diff([ADDRESS, EXIT], [LATER_ADDRESS, EXIT])[0], 0)

    def test_anything_else_is_not(self):
        for old, new in [(PARAMETER, OF_THE_DRIVER), (BARRIER, OF_128_THREADS), (FADD, YIELDING_FADD), (FADD, EXIT)]:
            code, text = self.diff([old, EXIT], [new, EXIT])
            self.assertEqual(code, 1, text)
            self.assertIn("changed  k: 2 instructions became 2, 1 places differ, the first at 0x0000", text)

    def test_an_instruction_more_is_a_change(self):
        code, text = self.diff([FADD, EXIT], [FADD, FADD, EXIT])
        self.assertEqual(code, 1)
        self.assertIn("2 instructions became 3, 2 places differ, the first at 0x0010", text)

    def test_a_renamed_kernel_is_the_same(self):
        old = self.file("old.o", device_file({"first": [FADD, EXIT], "other": [EXIT]}))
        new = self.file("new.o", device_file({"second": [FADD, EXIT], "other": [EXIT]}))
        code, text = self.run_main(old, new)
        self.assertEqual(code, 0, text)
        self.assertIn("renamed  first -> second", text)

    def test_a_file_may_move(self):
        name = "_ZN4cuda44_GLOBAL__N__{}_11_quantize_cu_{}3RunEv"
        old = self.file("old.o", device_file({name.format("4e5f91ff", "8f2ed76d"): [EXIT]}))
        new = self.file("new.o", device_file({name.format("0d9e5433", "56f64c5e"): [FADD]}))
        self.assertIn("changed  _ZN4cuda(quantize_cu)3RunEv", self.run_main(old, new)[1])

    def test_a_new_kernel_is_named_and_is_no_change(self):
        old = self.file("old.o", device_file({"a": [FADD, EXIT]}))
        new = self.file("new.o", device_file({"a": [FADD, EXIT], "b": [EXIT]}))
        code, text = self.run_main(old, new)
        self.assertEqual(code, 0, text)
        self.assertIn("new      b\n2 kernels, 0 not as they were", text)

    def test_kernels_that_come_or_go_are_named(self):
        old = self.file("old.o", device_file({"a": [FADD, EXIT]}))
        new = self.file("new.o", device_file({"b": [EXIT]}))
        code, text = self.run_main(old, new)
        self.assertEqual(code, 1)
        self.assertIn("gone     a\nnew      b\n", text)

    def test_several_files_and_a_linked_binary_are_alike(self):
        one, two = device_file({"a": [FADD, EXIT]}), device_file({"b": [EXIT]})
        old = self.file("a.o", one) + "," + self.file("b.o", two)
        self.assertEqual(self.run_main(old, self.file("linked", one, two))[0], 0)

    def test_a_reference_is_what_was_written(self):
        reference = os.path.join(self.folder.name, "reference.json")
        new = self.file("new.o", device_file({"a": [FADD, EXIT]}))
        self.assertEqual(self.run_main("--write", reference, new)[0], 0)
        with open(reference, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["compiler"], "13.0.88")
        self.assertEqual(self.run_main(reference, new)[0], 0)
        self.assertEqual(self.run_main(reference, self.file("other.o", device_file({"a": [EXIT]})))[0], 1)

    def test_another_compiler_is_skipped(self):
        old = self.file("old.o", device_file({"a": [EXIT]}))
        new = self.file("new.o", device_file({"a": [FADD, EXIT]}, compiler="13.1.80"))
        code, text = self.run_main(old, new)
        self.assertEqual(code, 77)
        self.assertIn("skipped: compiler differs, 13.0.88 and 13.1.80", text)

    def test_a_file_without_kernels_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "no kernel that can be read"):
            self.diff_of_nothing()

    def diff_of_nothing(self):
        return self.run_main(self.file("old.o"), self.file("new.o", device_file({"a": [EXIT]})))

    def test_one_name_for_two_kernels_is_refused(self):
        paths = self.file("a.o", device_file({"k": [EXIT]})) + "," + self.file("b.o", device_file({"k": [FADD]}))
        with self.assertRaisesRegex(ValueError, "k is another kernel"):
            self.run_main(paths, paths)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import sass_diff

    unittest.main(argv=sys.argv[:1])
