"""What a type checker tells users of the package: nothing where all is well, a typo where there is
one. mypy --strict, over the package, over the pages' snippets, and over mistakes.
"""

import re
from pathlib import Path

import pytest
from mypy import api  # scripts/venv.sh installs it

import gemmd

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
PAGES = [
    "README.md", "client/python/README.md", "docs/tutorial.md", "docs/python.md", "docs/api.md",
    "docs/weights.md",
]  # fmt: skip

# Each line that ends with a comment must be refused with those words, and no other line.
MISTAKES = """
import numpy as np
import gemmd
import gemmd.aio

x = np.ones((3, 8), np.float32)


def sync(client: gemmd.Client, session: gemmd.Session) -> None:
    session.matmul(x, x, quantize="fp8-blok")  # "matmul"
    session.matmul(x, x, quantise="fp8-block")  # "quantise"
    session.matmul(x, x, activation="swish")  # "matmul"
    session.matmul(x, x, alpha="2")  # "matmul"
    session.execute([], priority="urgent")  # "priority"
    session.execute([], report="all")  # "report"
    session.create_buffer(64, memory_kind="shared")  # "memory_kind"
    client.session(shared_memory="on")  # "shared_memory"
    client.explain(8, 8, 8, outdtype="f32")  # "outdtype"
    gemmd.Linear(session, x, activation="swish")  # "activation"
    gemmd.Linear(session, x, split="column")  # "split"
    gemmd.MLP(session, x, x, layout="stacked")  # "layout"
    gemmd.adopt(x, session, quantize="fp8")  # "quantize"
    gemmd.Replicas(["a:1"], lambda one: one, timeout=3)  # "timeout"
    with gemmd.connect() as other, other.session() as mine:
        mine.matmul(x, x).report.kernal  # "kernal"
        kernel: str = session.matmul(x, x).report.kernel
        path: str = session.upload(x).transfer.path
        of_operator: str = (x @ session.upload(x).T).report.kernel
        y: gemmd.Array = gemmd.Linear(session, x)(x)
        rate: float = y.report.tflops


async def asyncio_face(client: gemmd.aio.Client, session: gemmd.aio.Session) -> None:
    await session.matmul(x, x, quantize="fp8-blok")  # "matmul"
    session.matmul(x, x).report  # "report"
    kernel: str = (await session.matmul(x, x)).report.kernel
    async with client.session(label=3) as mine:  # "label"
        held = await mine.upload(x)
        await (x @ held.T)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """mypy --strict over files as a user has them: its messages."""
    source = Path(gemmd.__file__).parents[1]
    cache = tmp_path_factory.mktemp("mypy")

    def check(monkeypatch, *files):
        monkeypatch.setenv("MYPYPATH", "" if source.name == "site-packages" else str(source))
        monkeypatch.chdir(cache)  # away from this package's own settings
        out, err, _ = api.run(
            ["--strict", "--no-error-summary", f"--cache-dir={cache}", *map(str, files)]
        )
        assert not err, err
        return [line for line in out.splitlines() if ": note:" not in line]

    return check


def test_each_mistake_is_seen_and_nothing_else(checked, monkeypatch, tmp_path):
    path = tmp_path / "mistakes.py"
    path.write_text(MISTAKES)
    wanted = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(MISTAKES.splitlines(), 1)
        if "  # " in line
    }
    found = {}
    for line in checked(monkeypatch, path):
        number, text = re.fullmatch(r".*mistakes\.py:(\d+): error: (.*)", line).groups()
        found.setdefault(int(number), "")
        found[int(number)] += text
    assert found.keys() == wanted.keys(), found
    wrong = {n: text for n, text in found.items() if wanted[n].strip('"') not in text}
    assert not wrong


def test_the_snippets_of_the_pages_pass(checked, monkeypatch, tmp_path):
    files = []
    for page in PAGES:
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        assert blocks, f"{page} has no block of Python"
        for number, block in enumerate(blocks):
            files.append(tmp_path / f"{re.sub('[^a-z]', '_', page.lower())}_{number}.py")
            files[-1].write_text(block, encoding="utf-8")
    assert checked(monkeypatch, *files) == []


def test_the_package_passes(monkeypatch):
    monkeypatch.chdir(HERE.parent)
    if not Path("src/gemmd/v1/types_pb2.pyi").exists():
        pytest.skip("the sources here have no generated classes; setup.py writes them")
    out, err, status = api.run(["--no-error-summary", "--no-incremental"])
    assert (status, out + err) == (0, "")
