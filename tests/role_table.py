#!/usr/bin/env python3
"""docs/operations.md says who may call which RPC as service/wire/rpc_roles.cc has it: by service, and those that differ."""

import pathlib
import re
import sys

MARKS = {"kLook": "yes yes yes", "kWork": "yes no yes", "kObserve": "no yes yes", "kChange": "no no yes"}


def main(root):
    services = {}
    for proto in sorted((root / "proto/gemmd/v1").glob("*.proto")):
        for name, body in re.findall(r"^service (\w+) \{(.*?)^\}", proto.read_text(), re.M | re.S):
            services[name] = re.findall(r"^\s*rpc (\w+)\(", body, re.M)
    source = (root / "server/service/wire/rpc_roles.cc").read_text()
    kinds = dict(re.findall(r'\{"(\w+)", RpcKind::(\w+)\}', source))
    named = kinds.keys() - services.keys()  # RPCs that differ from their service
    rows = {}
    for line in (root / "docs/operations.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and all(cell in ("yes", "no") for cell in cells[1:]):
            for name in re.findall(r"`(\w+)`", cells[0]):
                rows[name] = " ".join(cells[1:])
    complaints = [f"{one}: no entry in service/wire/rpc_roles.cc" for one in sorted(services.keys() - kinds.keys())]
    for service, rpcs in services.items():
        for name in [service, *rpcs]:
            kind = kinds.get(name, kinds.get(service))
            told = rows.get(name, None if name in named or name == service else rows.get(service))
            if kind is not None and told != MARKS[kind]:
                complaints.append(f"{name}: docs/operations.md says {told!r}, service/wire/rpc_roles.cc {MARKS[kind]!r}")
    declared = {rpc for rpcs in services.values() for rpc in rpcs}
    complaints += [f"{rpc}: in service/wire/rpc_roles.cc, but no proto has it" for rpc in sorted(named - declared)]
    for complaint in complaints:
        print(f"role_table: {complaint}")
    print(f"role_table: {len(declared)} RPCs, {len(complaints)} complaints")
    return 1 if complaints or not declared else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
