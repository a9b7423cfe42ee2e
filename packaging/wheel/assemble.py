#!/usr/bin/env python3
"""Makes one wheel of the Python client's and of a tree of programs and their libraries (scripts/bundle.sh).

    assemble.py CLIENT.whl TREE DATA OUT

TREE becomes the package gemmd_programs, DATA what an installation puts below its prefix: share/man and the like. The
wheel's tag names the oldest glibc that every file in it runs on. Prints the wheel's path.
"""

import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import zipfile

SUMMARY = "gemmd multiplies matrices for other processes: the daemon, gemmctl and the Python client"
PROGRAMS = ("gemmd", "gemmctl", "gemmd_bench")
MAX_BYTES = 60_000_000
# The compiler's run time stays the system's; this is the newest that a system with that glibc is sure to have.
NEWEST_GLIBCXX, ITS_GLIBC = (3, 4, 30), (2, 35)
HERE = pathlib.Path(__file__).resolve().parent


def versions_needed(path, prefix):
    shown = subprocess.run(["readelf", "-W", "--version-info", str(path)], capture_output=True, text=True, check=True).stdout
    needs = shown[shown.find("Version needs section") :] if "Version needs section" in shown else ""
    return {tuple(map(int, found.split("."))) for found in re.findall(rf"\b{prefix}_([0-9.]+)", needs)}


def platform_of(files):
    glibc, glibcxx = {(2, 17)}, set()
    for file in files:
        if file.read_bytes()[:4] == b"\x7fELF":
            glibc |= versions_needed(file, "GLIBC")
            glibcxx |= versions_needed(file, "GLIBCXX")
    newest = max(glibcxx, default=(3, 4, 0))
    if newest > NEWEST_GLIBCXX:
        sys.exit(f"a file needs GLIBCXX_{'.'.join(map(str, newest))}, and no tag promises that; build on an older system")
    if newest == NEWEST_GLIBCXX:
        glibc.add(ITS_GLIBC)
    major, minor = max(glibc)[:2]
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def files_below(folder, place):
    return {f"{place}/{path.relative_to(folder)}": path for path in sorted(folder.rglob("*")) if path.is_file()}


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main():
    client, tree, data, out = map(pathlib.Path, sys.argv[1:])
    with zipfile.ZipFile(client) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
        native = [name for name in contents if re.fullmatch(r"gemmd/_native.*\.so", name)]
    if not native:
        sys.exit(f"{client.name} has no gemmd._native: this machine's compiler did not build it")
    info = next(name.split("/")[0] for name in contents if name.endswith(".dist-info/METADATA"))
    name, version = info.removesuffix(".dist-info").split("-")

    added = files_below(tree, "gemmd_programs") | files_below(HERE / "gemmd_programs", "gemmd_programs")
    added |= files_below(data, f"{name}-{version}.data/data")
    added = {place: path for place, path in added.items() if "__pycache__" not in place}
    scratch = out / "native.so"
    out.mkdir(parents=True, exist_ok=True)
    scratch.write_bytes(contents[native[0]])
    tag = f"cp311-abi3-{platform_of([*added.values(), scratch])}"
    scratch.unlink()

    metadata = contents[f"{info}/METADATA"].decode()
    contents[f"{info}/METADATA"] = re.sub(r"^Summary: .*$", f"Summary: {SUMMARY}", metadata, count=1, flags=re.M).encode()
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: gemmd\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    scripts = "".join(f"{program} = gemmd_programs:{program}\n" for program in PROGRAMS)
    contents[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
    contents[f"{info}/top_level.txt"] = b"gemmd\ngemmd_programs\n"
    contents |= {place: path.read_bytes() for place, path in added.items()}
    record = f"{info}/RECORD"
    contents.pop(record)
    contents[record] = "".join([*(f"{n},{digest(d)},{len(d)}\n" for n, d in sorted(contents.items())), f"{record},,\n"]).encode()

    wheel = out / f"{name}-{version}-{tag}.whl"
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]  # a zip's years begin in 1980
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for place in [*sorted(set(contents) - {record}), record]:
            item = zipfile.ZipInfo(place, when)
            item.compress_type = zipfile.ZIP_DEFLATED
            item.external_attr = (0o100755 if "/bin/" in place else 0o100644) << 16
            archive.writestr(item, contents[place])
    if wheel.stat().st_size > MAX_BYTES:
        sys.exit(f"{wheel} has {wheel.stat().st_size} bytes, more than {MAX_BYTES}; what grew?")
    print(wheel)


if __name__ == "__main__":
    main()
