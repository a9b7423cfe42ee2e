from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gemmd
from gemmd.retry import Retry

from .fake.server import FakeServer

BENCH = Path(__file__).parents[3] / "bench" / "python"  # what measures this client
QUICK = Retry(attempts=4, first_delay_s=0.001, longest_delay_s=0.002)


def pytest_addoption(parser):
    parser.addoption("--gemmd-server", help="address of a running gemmd, for tests marked e2e")


@pytest.fixture
def address(request):
    """A real daemon's address."""
    found = request.config.getoption("--gemmd-server")
    if not found:
        pytest.skip("no daemon: give its address with --gemmd-server")
    return found


@pytest.fixture
def fake(tmp_path):
    server = FakeServer(str(tmp_path))
    yield server
    server.close()


@pytest.fixture
def sharing_fake(tmp_path):
    server = FakeServer(str(tmp_path), share=True)
    yield server
    server.close()


@pytest.fixture
def arming_fake(tmp_path):
    """One that arms plans. Tests of it need the package's native module."""
    server = FakeServer(str(tmp_path), share=True, arms=True)
    yield server
    server.close()


@pytest.fixture
def client(fake):
    with gemmd.Client(fake.target, timeout_s=20, retry=QUICK) as client:
        yield client


@pytest.fixture
def session(client):
    with client.session() as session:
        yield session


@pytest.fixture
def random():
    """Fresh random numbers; the seed is printed when a test fails."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture
def x(session):
    """Large enough for its data to be shared."""
    return session.create_buffer(shape=(64, 1024), dtype="f32")


@pytest.fixture
def array(random):
    """For `x`."""
    return random.standard_normal((64, 1024), "f4")
