#!/usr/bin/env python3
"""The wire API grows and breaks nothing: compares proto/gemmd/v1 with what the last release had.

    proto_compat.py              exit 1 names every change that a client or server of that release would notice
    proto_compat.py --release    keeps today's as the release of CMakeLists.txt's version

Added files, messages, fields, enum values, services and methods are fine. The config's schema is held to the same: a file
that an older version took is taken.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASED = ROOT / "proto" / "released"
FIELD = descriptor_pb2.FieldDescriptorProto


def compiled(root=ROOT):
    """What the .proto files say now, without comments."""
    protos = sorted(path.relative_to(root / "proto") for path in (root / "proto/gemmd/v1").glob("*.proto"))
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(
            ["protoc", f"--proto_path={root / 'proto'}", f"--descriptor_set_out={out.name}", *map(str, protos)], check=True
        )
        return descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())


def version_of(path):
    return tuple(map(int, path.stem.split(".")))


def last_release():
    return max(RELEASED.glob("*.binpb"), key=version_of)


def field_says(field, message):
    """What of a field others rely on, by the words a complaint uses."""
    says = {
        "name": field.name,
        "type": FIELD.Type.Name(field.type).removeprefix("TYPE_").lower() + (f" {field.type_name}" if field.type_name else ""),
        "label": FIELD.Label.Name(field.label).removeprefix("LABEL_").lower(),
        "JSON name": field.json_name,
        "presence": "explicit" if field.proto3_optional else "implicit",
    }
    alone = field.proto3_optional or not field.HasField("oneof_index")
    says["oneof"] = "none" if alone else message.oneof_decl[field.oneof_index].name
    return says


def method_says(method):
    return {
        "request": ("stream " if method.client_streaming else "") + method.input_type,
        "response": ("stream " if method.server_streaming else "") + method.output_type,
    }


def differences(place, before, after):
    return [f"{place}: {what} was {before[what]} and is {after[what]}" for what in before if before[what] != after[what]]


def compare_enums(place, old, new):
    kept = {value.number: value.name for value in new.value}
    for value in old.value:
        if kept.get(value.number) != value.name:
            yield f"{place}: {value.number} was {value.name} and is {kept.get(value.number, 'gone')}"


def compare_messages(place, old, new):
    kept = {field.number: field for field in new.field}
    for field in old.field:
        if field.number not in kept:
            yield f"{place}: field {field.number}, {field.name}, is gone"
        else:
            yield from differences(
                f"{place} field {field.number}", field_says(field, old), field_says(kept[field.number], new)
            )
    yield from compare_scopes(place, old.nested_type, new.nested_type, old.enum_type, new.enum_type)


def compare_scopes(place, old_messages, new_messages, old_enums, new_enums):
    """Messages and enums of a file or of a message."""
    for old, new, compare in ((old_messages, new_messages, compare_messages), (old_enums, new_enums, compare_enums)):
        kept = {one.name: one for one in new}
        for one in old:
            name = f"{place}.{one.name}"
            if one.name in kept:
                yield from compare(name, one, kept[one.name])
            else:
                yield f"{name} is gone"


def compare_services(place, old, new):
    kept = {method.name: method for method in new.method}
    for method in old.method:
        name = f"{place}.{method.name}"
        if method.name in kept:
            yield from differences(name, method_says(method), method_says(kept[method.name]))
        else:
            yield f"{name} is gone"


def merged(files):
    """All files of the package as one: moving a message to another file breaks nobody on the wire."""
    whole = descriptor_pb2.FileDescriptorProto()
    for file in files.file:
        whole.message_type.extend(file.message_type)
        whole.enum_type.extend(file.enum_type)
        whole.service.extend(file.service)
    return whole


def complaints(old_files, new_files):
    old, new = merged(old_files), merged(new_files)
    found = list(compare_scopes("gemmd.v1", old.message_type, new.message_type, old.enum_type, new.enum_type))
    kept = {service.name: service for service in new.service}
    for service in old.service:
        name = f"gemmd.v1.{service.name}"
        found += compare_services(name, service, kept[service.name]) if service.name in kept else [f"{name} is gone"]
    return found


def main():
    if sys.argv[1:] == ["--release"]:
        version = re.search(r"^project\(gemmd VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
        target = RELEASED / f"{version}.binpb"
        target.write_bytes(compiled().SerializeToString(deterministic=True))
        print(f"{target.relative_to(ROOT)} is the wire API of {version}")
        return
    release = last_release()
    found = complaints(descriptor_pb2.FileDescriptorSet.FromString(release.read_bytes()), compiled())
    for complaint in found:
        print(f"{complaint} (release {release.stem})")
    if found:
        print("add a field, a value or a method instead, and leave what is there")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
