import pytest

import gemmd


@pytest.fixture
def client(address):
    with gemmd.Client(address) as client:
        yield client.wait_ready()
