import os
from pathlib import Path

import pytest
import server as fixed

HERE = Path(__file__).parent


def pytest_addoption(parser):
    parser.addoption("--gemmctl", required=True, help="the program")
    parser.addoption("--write", action="store_true", help="write the pictures anew")


@pytest.fixture(scope="session")
def gemmctl(request):
    return str(Path(request.config.getoption("--gemmctl")).resolve())


@pytest.fixture(scope="session")
def target():
    server, target = fixed.serve()
    yield target
    server.stop(0)


@pytest.fixture
def picture(request):
    """Compares a screen with the one in the file of that name."""

    def check(name, text):
        path = HERE / f"{name}.txt"
        if request.config.getoption("--write"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), (
            f"{path.name} differs; if the new one is better: pytest --write"
        )

    os.environ.pop("GEMMD_SERVER", None)
    return check
