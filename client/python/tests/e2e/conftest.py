import pytest

import gemmd
from gemmd._memory import cuda


@pytest.fixture
def client(address):
    with gemmd.Client(address) as client:
        yield client.wait_ready()


@pytest.fixture
def shared_gpu(client):
    """Skips without torch and a GPU that the daemon serves, too."""
    torch = pytest.importorskip("torch")
    if why := cuda.why_not():
        pytest.skip(why)
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    mine = cuda.driver().uuid(torch.cuda.current_device())
    if mine not in [one.gpu_uuid for one in client.devices()]:
        pytest.skip(f"the daemon has no device on {mine}")
