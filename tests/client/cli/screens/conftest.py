import os
import subprocess
import time
from pathlib import Path

import pytest
import server as fixed

HERE = Path(__file__).parent


def pytest_addoption(parser):
    parser.addoption("--gemmctl", required=True, help="the program")
    parser.addoption("--gemmd", required=True, help="the daemon, for what needs more than fixed answers")
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
def daemon(request, tmp_path):
    """The address of a daemon on this machine's processors."""
    target = f"unix:{tmp_path}/gemmd.sock"
    config = tmp_path / "gemmd.textproto"
    config.write_text(
        f'listeners {{ address: "{target}" }} tenants {{ name: "default" }} devices {{ name: "cpu:0" }}',
        encoding="utf-8",
    )
    command = [str(Path(request.config.getoption("--gemmd")).resolve()), "--config", str(config)]
    ready = tmp_path / "ready"
    process = subprocess.Popen([*command, "--ready-file", str(ready)], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < end, "gemmd did not get ready"
        time.sleep(0.05)
    yield target
    process.terminate()
    assert process.wait(60) == 0


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
