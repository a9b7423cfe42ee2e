#!/usr/bin/env python3
"""proto_compat.py tells every kind of change that breaks somebody, and lets the others be."""

import copy
import sys
import unittest

from google.protobuf import descriptor_pb2

import proto_compat

FIELD = descriptor_pb2.FieldDescriptorProto


def message(files, name):
    return next(m for file in files.file for m in file.message_type if m.name == name)


def field(files, name, number):
    return next(f for f in message(files, name).field if f.number == number)


def service(files, name):
    return next(s for file in files.file for s in file.service if s.name == name)


def enum(files, name):
    return next(e for file in files.file for e in file.enum_type if e.name == name)


class ProtoCompatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.now = proto_compat.compiled()

    def changed(self, change):
        files = copy.deepcopy(self.now)
        change(files)
        return "\n".join(proto_compat.complaints(self.now, files))

    def test_what_breaks_somebody_is_told(self):
        def renumber(files):
            field(files, "Tensor", 2).number = 77

        def swap(files):
            first, second = field(files, "OpenSessionRequest", 2), field(files, "OpenSessionRequest", 3)
            first.number, second.number = second.number, first.number

        def leave_oneof(files):
            one = next(f for f in message(files, "Op").field if f.HasField("oneof_index") and not f.proto3_optional)
            one.ClearField("oneof_index")

        breaking = {
            "field 2, offset_bytes, is gone": renumber,
            "name was label and is device": swap,
            "type was int64 and is string": lambda files: setattr(field(files, "Tensor", 2), "type", FIELD.TYPE_STRING),
            "label was optional and is repeated": lambda files: setattr(
                field(files, "Tensor", 2), "label", FIELD.LABEL_REPEATED
            ),
            "presence was explicit and is implicit": lambda files: field(files, "SetLogRequest", 2).ClearField("proto3_optional"),
            "JSON name was offsetBytes and is offset": lambda files: setattr(field(files, "Tensor", 2), "json_name", "offset"),
            "and is none": leave_oneof,
            "gemmd.v1.Tensor is gone": lambda files: setattr(message(files, "Tensor"), "name", "View"),
            "gemmd.v1.DType: 6 was DTYPE_I32 and is gone": lambda files: enum(files, "DType").value.pop(6),
            "2 was DTYPE_BF16 and is DTYPE_BFLOAT": lambda files: setattr(enum(files, "DType").value[2], "name", "DTYPE_BFLOAT"),
            "gemmd.v1.Device.State is gone": lambda files: message(files, "Device").enum_type.pop(0),
            "gemmd.v1.AdminService is gone": lambda files: setattr(service(files, "AdminService"), "name", "Admin"),
            "gemmd.v1.AdminService.GetLog is gone": lambda files: service(files, "AdminService").method.pop(0),
            "response was stream .gemmd.v1.TraceChunk and is .gemmd.v1.TraceChunk": lambda files: next(
                m for m in service(files, "AdminService").method if m.name == "Trace"
            ).ClearField("server_streaming"),
        }
        for words, change in breaking.items():
            with self.subTest(words):
                self.assertIn(words, self.changed(change))

    def test_what_grows_is_not(self):
        def grow(files):
            message(files, "Tensor").field.add(name="more", number=900, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
            enum(files, "DType").value.add(name="DTYPE_F64", number=99)
            service(files, "AdminService").method.add(name="More", input_type="a", output_type="b")
            files.file[0].message_type.add(name="New")
            files.file[0].options.go_package = "elsewhere"

        def move(files):
            moved = message(files, "Tensor")
            files.file[0].message_type.add().CopyFrom(moved)
            next(f for f in files.file if moved in f.message_type).message_type.remove(moved)

        self.assertEqual(self.changed(grow), "")
        self.assertEqual(self.changed(move), "")

    def test_the_newest_release_is_compared_with(self):
        newest = proto_compat.last_release()
        self.assertEqual(proto_compat.version_of(newest), max(map(proto_compat.version_of, proto_compat.RELEASED.glob("*"))))


if __name__ == "__main__":
    sys.exit(unittest.main())
