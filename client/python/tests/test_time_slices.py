"""A caller whose tensors are on the server's GPU is told once when the two take turns there."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import gemmd
from gemmd import native
from gemmd._layers import layer
from gemmd._memory import cuda

from .conftest import QUICK

pytestmark = pytest.mark.skipif(bool(native.why_not()), reason=native.why_not())


def warned(arming_fake, monkeypatch, server_under_mps: bool, caller_under_mps: bool) -> list[str]:
    """What two layers say when each is asked twice whether it takes tensors of GPU 0."""
    driver = SimpleNamespace(is_time_sliced=lambda device: not caller_under_mps)
    monkeypatch.setattr(cuda, "driver", lambda: driver)
    monkeypatch.setattr(layer, "why_not_on_gpu", lambda *_: "")
    monkeypatch.setattr(arming_fake, "under_mps", server_under_mps)
    with (
        gemmd.Client(arming_fake.target, timeout_s=20, retry=QUICK) as client,
        client.session() as session,
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("default")
        for _ in range(2):
            linear = gemmd.Linear(session, np.ones((8, 16), "f4"), quantize=None)
            assert linear.why_not_on_gpu(0) == linear.why_not_on_gpu(0) == ""
    assert all(issubclass(one.category, RuntimeWarning) for one in said)
    return [str(one.message) for one in said]


@pytest.mark.parametrize(
    "server_under_mps, caller_under_mps, who",
    [
        (False, False, "neither"),
        (True, False, "only the server"),
        (False, True, "only this process"),
    ],
)
def test_it_is_told_once_with_the_figure_and_the_remedy(
    arming_fake, monkeypatch, server_under_mps, caller_under_mps, who
):
    (text,) = warned(arming_fake, monkeypatch, server_under_mps, caller_under_mps)
    assert f"because {who} runs under MPS" in text
    assert "290 us" in text and "nvidia-cuda-mps-control -d" in text
    assert "CUDA_MPS_PIPE_DIRECTORY" in text


def test_side_by_side_nothing_is_said(arming_fake, monkeypatch):
    assert warned(arming_fake, monkeypatch, True, True) == []
