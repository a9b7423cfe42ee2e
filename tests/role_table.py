#!/usr/bin/env python3
"""Every RPC of the wire API has a line in service/wire/rpc_roles.cc, and docs/operations.md says the same roles."""

import pathlib
import re
import sys

MARKS = {"kLook": "yes yes yes", "kWork": "yes no yes", "kObserve": "no yes yes", "kChange": "no no yes"}


def main(root):
    rpcs = set()
    for proto in sorted((root / "proto/gemmd/v1").glob("*.proto")):
        rpcs |= set(re.findall(r"^\s*rpc (\w+)\(", proto.read_text(), re.M))
    source = (root / "server/service/wire/rpc_roles.cc").read_text()
    kinds = dict(re.findall(r'\{"(\w+)", RpcKind::(\w+)\}', source))
    rows = {}
    for line in (root / "docs/operations.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and all(cell in ("yes", "no") for cell in cells[1:]):
            for rpc in re.findall(r"`(\w+)`", cells[0]):
                rows[rpc] = " ".join(cells[1:])
    complaints = [f"{rpc}: no entry in service/wire/rpc_roles.cc" for rpc in sorted(rpcs - kinds.keys())]
    complaints += [f"{rpc}: in service/wire/rpc_roles.cc, but no proto has it" for rpc in sorted(kinds.keys() - rpcs)]
    complaints += [f"{rpc}: docs/operations.md says {rows.get(rpc)!r}, service/wire/rpc_roles.cc {MARKS[kinds[rpc]]!r}"
                   for rpc in sorted(rpcs & kinds.keys()) if rows.get(rpc) != MARKS[kinds[rpc]]]
    for complaint in complaints:
        print(f"role_table: {complaint}")
    print(f"role_table: {len(rpcs)} RPCs, {len(complaints)} complaints")
    return 1 if complaints or not rpcs else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
