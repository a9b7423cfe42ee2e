"""What tests with torch's compiler begin with: a fixture to import."""

import pytest
import torch


@pytest.fixture(autouse=True)
def no_gradients():
    """And nothing that torch has compiled before, and the same random numbers each time."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    with torch.no_grad():
        yield
