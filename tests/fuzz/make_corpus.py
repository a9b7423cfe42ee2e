#!/usr/bin/env python3
"""Writes the first inputs of the byte-format fuzzers into corpus/, from nothing but this file.

Good files of each kind, and each lie that a header can tell. The corpora of the request messages are
text, written by hand. Inputs that a fuzzer found are added beside these.
"""

import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def npy(header, data, version=1, length=None):
    text = header.encode() + b"\n"
    size = len(text) if length is None else length
    prefix = b"\x93NUMPY" + bytes([version, 0])
    return prefix + struct.pack("<H" if version == 1 else "<I", size) + text + data


def npy_dict(descr, shape, fortran=False):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"


def armed_word(at, value, factor=0):
    """Writes `value` to the word at that place of the region; above 3, a large number."""
    return struct.pack("<HBB", at, value, factor)


def make_armed():
    slots = 32
    gates = 128 // 4
    done = gates + 2 * slots
    reports = done + 16 * slots
    write("fuzz_armed", "nothing", b"")
    write("fuzz_armed", "rings_all_the_time", b"".join(armed_word(gates + i, 1) for i in range(slots)))
    write("fuzz_armed", "nonsense_in_gates", b"".join(armed_word(gates + i, 200 + i, i) for i in range(8)))
    write("fuzz_armed", "header", b"".join(armed_word(i, 255, i) for i in range(32)))
    write("fuzz_armed", "done_and_waiters",
          b"".join(armed_word(done + 16 * i + j, j + 1) for i in range(slots) for j in range(2)))
    write("fuzz_armed", "reports", b"".join(armed_word(reports + i, 255, i & 255) for i in range(0, 32 * slots, 7)))
    write("fuzz_armed", "plan_and_buffer_deleted",
          bytes([7, 7, 253, 254, 7, 15, 0, 1]) + b"".join(armed_word(gates + i, 1) for i in range(8)))


def make_npy():
    for name, descr, size in [("f4", "<f4", 4), ("f8", "<f8", 8), ("f2", "<f2", 2), ("i1", "|i1", 1),
                              ("v1", "|V1", 1), ("v2", "<V2", 2)]:
        write("fuzz_npy", f"good_{name}", npy(npy_dict(descr, "(2, 3)"), bytes(range(6 * size))))
    good = npy_dict("<f4", "(2, 3)")
    data = bytes(24)
    write("fuzz_npy", "version2", npy(good, data, version=2))
    write("fuzz_npy", "version3", npy(good, data, version=3))
    write("fuzz_npy", "version9", npy(good, data, version=9))
    write("fuzz_npy", "fortran", npy(npy_dict("<f4", "(2, 3)", True), data))
    write("fuzz_npy", "scalar", npy(npy_dict("<f4", "()"), bytes(4)))
    write("fuzz_npy", "vector", npy(npy_dict("<f4", "(6,)"), data))
    write("fuzz_npy", "empty_file", b"")
    write("fuzz_npy", "magic_only", b"\x93NUMPY")
    write("fuzz_npy", "truncated_data", npy(good, data[:23]))
    write("fuzz_npy", "trailing_data", npy(good, data + b"x"))
    write("fuzz_npy", "length_beyond_file", npy(good, data, length=60000))
    write("fuzz_npy", "length_4gib", npy(good, data, version=2, length=0xFFFFFFFF))
    write("fuzz_npy", "shape_overflows", npy(npy_dict("<f4", "(4611686018427387904, 4)"), data))
    write("fuzz_npy", "shape_negative", npy(npy_dict("<f4", "(-2, -3)"), data))
    write("fuzz_npy", "shape_past_int64", npy(npy_dict("<f4", "(99999999999999999999,)"), data))
    write("fuzz_npy", "zero_extent", npy(npy_dict("<f4", "(0, 3)"), b""))
    write("fuzz_npy", "big_endian", npy(npy_dict(">f4", "(2, 3)"), data))
    write("fuzz_npy", "object", npy(npy_dict("|O", "(2, 3)"), data))
    write("fuzz_npy", "python", npy("__import__('os').system('true')", data))
    write("fuzz_npy", "missing_key", npy("{'descr': '<f4', 'shape': (2, 3), }", data))
    write("fuzz_npy", "repeated_key", npy("{'descr': '<f4', 'descr': '<f8', 'shape': (1,)}", data))


def safetensors(header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def make_safetensors():
    good = {"w": entry("F32", [2, 3], 0, 24)}
    data = bytes(24)
    two = {"a": entry("F8_E4M3", [4], 0, 4), "b": entry("BF16", [2, 5], 4, 24),
           "__metadata__": {"format": "pt"}}
    write("fuzz_safetensors", "good", safetensors(good, data))
    write("fuzz_safetensors", "two", safetensors(two, data))
    write("fuzz_safetensors", "f16_i8", safetensors(
        {"x": entry("F16", [4], 0, 8), "y": entry("I8", [16], 8, 24)}, data))
    write("fuzz_safetensors", "unserved_type", safetensors({"w": entry("I64", [3], 0, 24)}, data))
    write("fuzz_safetensors", "empty_file", b"")
    write("fuzz_safetensors", "no_tensor", safetensors({}, b""))
    write("fuzz_safetensors", "length_beyond_file", safetensors(good, data, 1 << 20))
    write("fuzz_safetensors", "length_2_to_64", safetensors(good, data, (1 << 64) - 1))
    write("fuzz_safetensors", "truncated", safetensors(good, data[:20]))
    write("fuzz_safetensors", "trailing", safetensors(good, data + b"x"))
    write("fuzz_safetensors", "overlap", safetensors(
        {"a": entry("F32", [4], 0, 16), "b": entry("F32", [4], 8, 24)}, data))
    write("fuzz_safetensors", "hole", safetensors(
        {"a": entry("F32", [1], 0, 4), "b": entry("F32", [4], 8, 24)}, data))
    write("fuzz_safetensors", "backwards", safetensors({"w": entry("F32", [2, 3], 24, 0)}, data))
    write("fuzz_safetensors", "negative", safetensors({"w": entry("F32", [-6], -24, 0)}, data))
    write("fuzz_safetensors", "overflow", safetensors({"w": entry("F32", [1 << 62, 4], 0, 24)}, data))
    write("fuzz_safetensors", "wrong_size", safetensors({"w": entry("F32", [2, 2], 0, 24)}, data))
    write("fuzz_safetensors", "fraction", safetensors(
        b'{"w":{"dtype":"F32","shape":[1.5],"data_offsets":[0,6e0]}}', data))
    write("fuzz_safetensors", "deep", safetensors(b"[" * 2000, data))
    write("fuzz_safetensors", "repeated_name", safetensors(
        b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8)))
    write("fuzz_safetensors", "escapes", safetensors(
        b'{"\\u0077\\ud83d\\ude00":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}', b"x"))
    write("fuzz_safetensors", "lone_surrogate", safetensors(
        b'{"\\ud83d":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}', b"x"))


def make_config():
    full = """listeners { address: "127.0.0.1:8470" tenant: "batch" }
listeners { address: "unix:/run/gemmd/gemmd.sock" unix_mode: 432 }
devices { name: "cpu:0" memory_bytes: 1073741824 threads: 2 disabled_kernels: "cpu_blas" }
tenants { name: "batch" weight: 0.5 limits { max_sessions: 3 max_buffer_bytes: 65536 } }
tenants { name: "default" weight: 100 }
limits { max_message_bytes: 4194304 max_ops: 1 max_inline_bytes: 1 max_sessions: 1 max_buffers: 1
         max_plans: 1 max_queued_programs: 1 max_streams: 1 window_batches: 1 window_bytes: 1
         idempotency_entries: 1 }
session { default_ttl_ms: 30000 min_ttl_ms: 1000 max_ttl_ms: 3600000 default_grace_ms: 2000 }
scheduler { lookahead_us: 10 aging_ms: 1 inline_below_us: 1000 }
drain { notice_ms: 60000 limit_ms: 600000 }
share { socket_path: "/tmp/share.sock" }
metrics { address: "127.0.0.1:0" }
log { format: FORMAT_JSON level: LEVEL_DEBUG sample_calls: 100 }
"""
    listener = 'listeners { address: "unix-abstract:g" }\n'
    write("fuzz_config", "full", full)
    write("fuzz_config", "least", listener)
    write("fuzz_config", "empty", "")
    write("fuzz_config", "per_device", 'listeners { address: "unix:/run/{device}.sock" } metrics { address: "127.0.0.1:8480" } '
                                       'devices { name: "cpu:0" } devices { name: "cpu:1" }')
    write("fuzz_config", "comment", "# nothing\n" + listener)
    for name, text in {
        "unknown_field": "colour: 3", "syntax": "limits {", "binary": "\x00\x01limits",
        "weight_zero": 'tenants { name: "a" weight: 0.001 }', "weight_nan": 'tenants { name: "a" weight: nan }',
        "negative": "limits { max_ops: -1 }", "huge": "limits { max_buffer_bytes: 9223372036854775807 }",
        "not_loopback": 'listeners { address: "0.0.0.0:1" }', "no_port": 'listeners { address: "127.0.0.1" }',
        "port": 'listeners { address: "127.0.0.1:99999" }', "six": 'listeners { address: "[::1]:0" }',
        "twice": 'tenants { name: "a" } tenants { name: "a" }', "bad_name": 'tenants { name: "A b" }',
        "ttls": "session { min_ttl_ms: 5000 max_ttl_ms: 10 }", "off": "share { disabled: true }",
        "device": 'devices { name: "cpu:1" threads: -3 }', "extension": "[x.y]: 1",
        "numa": 'devices { name: "cuda:0" no_numa_binding: true }',
        "any": 'limits { [type.googleapis.com/gemmd.v1.LimitsConfig] { max_ops: 2 } }',
    }.items():
        write("fuzz_config", name, listener + text)


if __name__ == "__main__":
    make_armed()
    make_npy()
    make_safetensors()
    make_config()
