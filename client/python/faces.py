"""Makes the sync face's modules out of the asyncio face's: src/gemmd/NAME.py out of
src/gemmd/aio/NAME.py, the one source.

    python3 faces.py            writes them; setup.py does so before anything is packaged
    python3 faces.py --check    fails when one of them has no source, or git has one

What differs is marked in the source:

    code  # aio           is the asyncio face's alone; a block: `# aio {`, `# }` on their own lines
    # sync: code          is the sync face's alone
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FACES = (
    "arming", "buffer", "buffers", "client", "loading", "plan", "replicas",
    "session", "transfer", "work",
)  # fmt: skip

_WORDS = [
    (r"\bawait asyncio\.to_thread\(([\w.]+)\)", r"\1()"),
    (r"\bawait asyncio\.to_thread\(([\w.]+), ", r"\1("),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bgemmd\.aio\b", "gemmd"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsync(Iterator|Iterable|Mover)\b", r"\1"),
    (r"\b(?:Awaitable|Opening)\[(\w+)\]", r"\1"),
    (r"^(class .*), Awaited\)", r"\1)"),
    (r"\basyncio\.Lock\b", "threading.Lock"),
    (r"^import asyncio$", "import threading"),
]


def sync_face(source: str, origin: str) -> str:
    """The sync face's module, of the asyncio face's text."""
    lines, skipping = [f"# Made by faces.py out of {origin}: change that.\n"], False
    for line in source.splitlines():
        bare = line.strip()
        if bare in ("# aio {", "# }"):
            if skipping == (bare == "# aio {"):
                raise SystemExit(f"{origin}: '{bare}' where none may be")
            skipping = bare != "# }"
            continue
        if skipping or line.endswith("  # aio"):
            continue
        line = re.sub(r"^( *)# sync: ?", r"\1", line).rstrip()
        for pattern, replacement in _WORDS:
            line = re.sub(pattern, replacement, line)
        lines.append(line + "\n")
    if skipping:
        raise SystemExit(f"{origin}: '# aio {{' without its '# }}'")
    return "".join(lines)


def generate(root: Path) -> None:
    for name in FACES:
        source = root / "src" / "gemmd" / "aio" / f"{name}.py"
        text = sync_face(source.read_text(encoding="utf-8"), f"aio/{name}.py")
        target = root / "src" / "gemmd" / f"{name}.py"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")


def check(root: Path) -> list[str]:
    """What is wrong with the sources: each compiles in both faces, and git has only one."""
    wrong = []
    for name in FACES:
        source = root / "src" / "gemmd" / "aio" / f"{name}.py"
        text = sync_face(source.read_text(encoding="utf-8"), f"aio/{name}.py")
        compile(text, f"{name}.py (generated)", "exec")
        for word in ("await ", "async ", "asyncio"):
            if re.search(rf"^[^#\"`]*\b{word}", text, re.M):
                found = f"{name}: the sync face has '{word.strip()}'"
                wrong.append(f"{found}; mark the line in aio/{name}.py")
    listed = ["git", "ls-files", "--", *(f"src/gemmd/{name}.py" for name in FACES)]
    tracked = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=False).stdout
    wrong += [f"{path} is generated; take it out of git" for path in tracked.split()]
    return wrong


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        problems = check(HERE)
        print("\n".join(problems) or f"faces: {len(FACES)} modules, one source each")
        sys.exit(1 if problems else 0)
    generate(HERE)
