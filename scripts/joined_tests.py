#!/usr/bin/env python3
"""Writes one ctest folder for the tests of several presets, so that one run has them all and its closing line counts them.

  scripts/joined_tests.py OUT 'NAME PRESET [CTEST FILTERS]' ...

NAME goes in front of the tests' names, as asan/engine_test.X; `-` puts nothing there. What runs is what ctest lists for the
preset with these filters, in the environment that CMakePresets.json gives it. Then: ctest --test-dir OUT.
"""

import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def environment_of(preset: str) -> dict[str, str]:
    """A test preset's own environment over what it inherits."""
    presets = {one["name"]: one for one in json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]}
    parents = presets[preset].get("inherits", [])
    found: dict[str, str] = {}
    for parent in [parents] if isinstance(parents, str) else reversed(parents):
        found |= environment_of(parent)
    own = presets[preset].get("environment", {})
    return found | {name: value.replace("${sourceDir}", str(ROOT)) for name, value in own.items()}


def quoted(text: str) -> str:
    """A CMake bracket argument, in which nothing has a meaning."""
    return f"[==[{text}]==]"


def value_of(value: object) -> str:
    if isinstance(value, list):
        return ";".join(str(one) for one in value)
    return str(value)


def entries(name: str, preset: str, filters: list[str]) -> list[str]:
    listed = subprocess.run(["ctest", "--preset", preset, "--show-only=json-v1", *filters], cwd=ROOT, check=True,
                            capture_output=True, text=True)
    tests = json.loads(listed.stdout)["tests"]
    if not tests:
        sys.exit(f"joined_tests.py: preset {preset} has no test for {shlex.join(filters)}")
    prefix = "" if name == "-" else f"{name}/"
    environment = [f"{key}={value}" for key, value in environment_of(preset).items()]
    lines = []
    for test in tests:
        properties = {one["name"]: one["value"] for one in test["properties"]}
        properties["ENVIRONMENT"] = environment + properties.get("ENVIRONMENT", [])
        # One whose program was not built has no command, and is to fail.
        command = test.get("command", [f"{test['name']}_NOT_BUILT"])
        called = quoted(prefix + test["name"])
        lines.append(f"add_test({called} {' '.join(quoted(word) for word in command)})")
        pairs = " ".join(f"{key} {quoted(value_of(value))}" for key, value in properties.items())
        lines.append(f"set_tests_properties({called} PROPERTIES {pairs})")
    return lines


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    lines = []
    for listing in sys.argv[2:]:
        name, preset, *filters = shlex.split(listing)
        lines += entries(name, preset, filters)
    out.mkdir(parents=True, exist_ok=True)
    (out / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
