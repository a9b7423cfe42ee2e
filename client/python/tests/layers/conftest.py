"""Layers are tested against a server that arms plans and one that does not, unless a file says other."""

import pytest

import gemmd
from gemmd import native

from ..conftest import QUICK

needs_native = pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())


@pytest.fixture(params=["plain", pytest.param("arming", marks=needs_native)])
def server(request, fake, arming_fake):
    return fake if request.param == "plain" else arming_fake


@pytest.fixture
def client(server):
    with gemmd.Client(server.target, timeout_s=20, retry=QUICK) as client:
        yield client
