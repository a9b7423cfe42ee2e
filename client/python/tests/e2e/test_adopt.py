"""adopt on a real daemon: two workers and one copy of a model's weights. Skips without torch."""

import time

import pytest

import gemmd

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("quantize", ["fp8-block", "fp8-row", None])
def test_two_workers_serve_a_model_from_one_copy(client, address, quantize):
    torch = pytest.importorskip("torch")
    from ..layers.models import PATHS, TOKENS, Model, relative_error

    name = f"adopted/{time.time_ns()}"
    options = {"name": name, "quantize": quantize, "min_elements": 0}
    model = Model().eval()
    with torch.device("meta"):
        other = Model().eval()
    with torch.no_grad(), client.session() as session:
        wanted = model(TOKENS)
        adopted = gemmd.adopt(model, session, **options)
        assert sorted(adopted.layers) == sorted(PATHS) and not adopted.left
        y = model(TOKENS)
        assert relative_error(y, wanted) < (0.1 if quantize else 1e-4)
        with gemmd.Client(address) as second, second.session() as session:
            found = gemmd.adopt(other, session, **options)
            other.load_state_dict(model.state_dict(), assign=True)
            assert torch.equal(other(TOKENS), y)
            found.unpublish()
        adopted.unpublish()  # they are gone already
    assert not [one for one in client.published() if one.published_name.startswith(name)]
